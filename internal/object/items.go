package object

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// ListMeta is what a page of a list says about itself.
type ListMeta struct {
	APIVersion, Kind   string
	ResourceVersion    string
	Continue           string // "" on the last page
	RemainingItemCount int64  // 0 where not told
}

// Items reads one page of a list item by item, without holding the page. It belongs to one goroutine.
type Items struct {
	src   source
	stack nesting
	meta  ListMeta
	where place
	seen  bool // items
	err   error
}

// place is what comes next in the page.
type place uint8

const (
	atStart place = iota
	atFirstMember
	atMember // behind a comma
	behindMember
	atFirstItem
	behindItem
	atEnd
)

// NewItems reads a page from r, of which neither an item nor any other value may be longer than max bytes (else
// ErrTooLarge).
func NewItems(r io.Reader, max int) *Items {
	return &Items{src: source{r: r, max: max}}
}

// Meta is complete once Next has returned io.EOF.
func (it *Items) Meta() ListMeta { return it.meta }

// Next is the next item as it came, valid until the next call. Its inside has not been checked: Scan does. The error
// is io.EOF when the page is complete and r has been read to its end (so that a connection can be used again), and
// io.ErrUnexpectedEOF when it ends before the page does. A list without items is an error, not an empty list: who
// takes it for one would see everything deleted. "items":null is empty.
func (it *Items) Next() ([]byte, error) {
	if it.err != nil {
		return nil, it.err
	}
	item, err := it.next()
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("list: %w", err)
	}
	it.err = err
	return item, err
}

func (it *Items) next() ([]byte, error) {
	for {
		c, err := it.src.peek()
		if it.where == atEnd {
			if err == nil {
				err = it.src.unexpected("behind the list")
			}
			return nil, err
		}
		if err != nil {
			return nil, inside(err)
		}
		switch it.where {
		case atStart:
			if c != '{' {
				return nil, it.src.unexpected("where a list begins")
			}
			it.src.start++
			it.where = atFirstMember
		case atFirstMember, behindMember:
			switch {
			case c == '}':
				if !it.seen {
					return nil, errors.New("no items")
				}
				it.src.start++
				it.where = atEnd
			case c == ',' && it.where == behindMember:
				it.src.start++
				it.where = atMember
			case it.where == behindMember:
				return nil, it.src.unexpected("behind a member")
			default:
				it.where = atMember
			}
		case atMember:
			if err := it.member(); err != nil {
				return nil, err
			}
		case atFirstItem, behindItem:
			switch {
			case c == ']':
				it.src.start++
				it.where = behindMember
				continue
			case it.where == behindItem && c != ',':
				return nil, it.src.unexpected("behind an item")
			case it.where == behindItem:
				it.src.start++
				if c, err = it.src.peek(); err != nil {
					return nil, inside(err)
				}
			}
			it.where = behindItem
			return it.item(c)
		}
	}
}

// item takes the item that starts with c.
func (it *Items) item(c byte) ([]byte, error) {
	switch c {
	case ',', ':', '}', ']':
		return nil, it.src.unexpected("where an item begins")
	}
	return it.src.value()
}

// member takes one member of the list, or the beginning of its items.
func (it *Items) member() error {
	if it.src.buf[it.src.start] != '"' {
		return it.src.unexpected("where a member begins")
	}
	raw, err := it.src.value()
	if err != nil {
		return err
	}
	name, err := unquoted(raw)
	if err != nil {
		return err
	}
	if ok, err := it.src.punctuation(':'); err != nil {
		return err
	} else if !ok {
		return it.src.unexpected("behind a name")
	}
	c, err := it.src.peek()
	if err != nil {
		return inside(err)
	}
	if name == "items" && it.seen {
		return errors.New("items stands twice") // the last would count, and the first have been delivered
	}
	if name == "items" && c == '[' {
		it.src.start++
		it.seen = true
		it.where = atFirstItem
		return nil
	}
	it.where = behindMember
	value, err := it.item(c)
	if err != nil {
		return err
	}
	if end := it.stack.skip(value, 0, 1); end < 0 {
		return fmt.Errorf("%s: %w", name, syntaxError(value, end))
	} else if end < len(value) {
		return fmt.Errorf("%s: %w", name, syntaxError(value, ^end))
	}
	switch name {
	case "items":
		if c != 'n' {
			return errors.New("items is not an array")
		}
		it.seen = true
	case "kind":
		it.meta.Kind, err = unquoted(value)
	case "apiVersion":
		it.meta.APIVersion, err = unquoted(value)
	case "metadata":
		err = it.metadata(value)
	}
	if err != nil {
		return fmt.Errorf("%s %w", name, err)
	}
	return nil
}

func (it *Items) metadata(value []byte) error {
	it.meta = ListMeta{APIVersion: it.meta.APIVersion, Kind: it.meta.Kind}
	if value[0] == 'n' {
		return nil
	}
	if value[0] != '{' {
		return errors.New("is not an object")
	}
	return eachMember(&it.stack, value, func(name, value []byte) (err error) {
		switch string(name) {
		case "resourceVersion":
			it.meta.ResourceVersion, err = unquoted(value)
		case "continue":
			it.meta.Continue, err = unquoted(value)
		case "remainingItemCount":
			it.meta.RemainingItemCount = 0
			if value[0] != 'n' {
				it.meta.RemainingItemCount, err = strconv.ParseInt(string(value), 10, 64)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// unquoted is the text of a JSON string, "" for null.
func unquoted(value []byte) (string, error) {
	if bytes.Equal(value, []byte("null")) {
		return "", nil
	}
	if len(value) == 0 || value[0] != '"' {
		return "", errors.New("is not a string")
	}
	if end := skipString(value, 1); end != len(value) {
		return "", syntaxError(value, end)
	}
	return string(AppendUnescaped(nil, value[1:len(value)-1])), nil
}
