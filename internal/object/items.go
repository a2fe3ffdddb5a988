package object

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// ListMeta is the metadata of a page of a list.
type ListMeta struct {
	APIVersion, Kind   string
	ResourceVersion    string
	Continue           string // "" on the last page
	RemainingItemCount int64  // 0 if absent
}

// Items reads one page of a list item by item, without holding the page. It belongs to one
// goroutine.
type Items struct {
	src   valueReader
	stack jsonscan.Nesting
	meta  ListMeta
	where position
	seen  bool // items was seen
	err   error
}

// position is the parser's position in the page.
type position uint8

const (
	atStart position = iota
	atFirstMember
	atMember // after a comma
	afterMember
	atFirstItem
	afterItem
	atEnd
)

// NewItems returns a reader of a page. An item or any other value of more than max bytes is an
// ErrTooLarge.
func NewItems(r io.Reader, max int) *Items {
	return &Items{src: valueReader{r: r, max: max}}
}

// Meta is complete once Next has returned io.EOF.
func (it *Items) Meta() ListMeta { return it.meta }

// Next returns the next item unchanged, valid until the next call. Scan must check the inside of
// the item. The error is io.EOF when the page is complete and r has been read to its end (so that
// the connection can be reused), and io.ErrUnexpectedEOF when r ends before the page does. A list
// without items is an error, not an empty list: otherwise every object would appear deleted.
// "items":null is empty.
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
				err = it.src.unexpected("after the list")
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
		case atFirstMember, afterMember:
			switch {
			case c == '}':
				if !it.seen {
					return nil, errors.New("no items")
				}
				it.src.start++
				it.where = atEnd
			case c == ',' && it.where == afterMember:
				it.src.start++
				it.where = atMember
			case it.where == afterMember:
				return nil, it.src.unexpected("after a member")
			default:
				it.where = atMember
			}
		case atMember:
			if err := it.member(); err != nil {
				return nil, err
			}
		case atFirstItem, afterItem:
			switch {
			case c == ']':
				it.src.start++
				it.where = afterMember
				continue
			case it.where == afterItem && c != ',':
				return nil, it.src.unexpected("after an item")
			case it.where == afterItem:
				it.src.start++
				c, err = it.src.peek()
				if err != nil {
					return nil, inside(err)
				}
			}
			it.where = afterItem
			return it.item(c)
		}
	}
}

// item consumes the item that starts with c.
func (it *Items) item(c byte) ([]byte, error) {
	switch c {
	case ',', ':', '}', ']':
		return nil, it.src.unexpected("where an item begins")
	}
	return it.src.value()
}

// member consumes one member of the list, or the beginning of its items.
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
		return it.src.unexpected("after a name")
	}
	c, err := it.src.peek()
	if err != nil {
		return inside(err)
	}
	if name == "items" && it.seen {
		return errors.New("duplicate items") // the last one would count, but the first has been delivered
	}
	if name == "items" && c == '[' {
		it.src.start++
		it.seen = true
		it.where = atFirstItem
		return nil
	}
	it.where = afterMember
	value, err := it.item(c)
	if err != nil {
		return err
	}
	if end := it.stack.Skip(value, 0, 1); end < 0 {
		return fmt.Errorf("%s: %w", name, jsonscan.ErrorAt(value, end))
	} else if end < len(value) {
		return fmt.Errorf("%s: %w", name, jsonscan.ErrorAt(value, ^end))
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

// unquoted returns the text of a JSON string, "" for null.
func unquoted(value []byte) (string, error) {
	if bytes.Equal(value, []byte("null")) {
		return "", nil
	}
	if len(value) == 0 || value[0] != '"' {
		return "", errors.New("is not a string")
	}
	if end := jsonscan.SkipString(value, 1); end != len(value) {
		return "", jsonscan.ErrorAt(value, end)
	}
	return string(jsonscan.AppendUnescaped(nil, value[1:len(value)-1])), nil
}
