package yamldoc

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// The parser stores the path of each node. Its memory grows with the square of the nesting, and
// with the length of keys: 120 KB of [ took 21 GB. No configuration needs half of these limits.
const (
	maxLevels = 64
	maxPaths  = 32 << 20 // bytes of all paths
	maxBlank  = 500      // blank lines in a row: the time of the lexer grows with their square
)

// tokenize returns the tokens of a document if the parser can read them with little memory and
// time. Otherwise it returns an error and the token that is beyond a limit.
func tokenize(data []byte) (token.Tokens, *token.Token, error) {
	if line := blankLines(data); line > 0 {
		return nil, at(line, 1), fmt.Errorf("must not have more than %d blank lines in a row", maxBlank)
	}
	tokens := lexer.Tokenize(string(data))
	var n nesting
	var seen token.Tokens // without comments
	paths := 0
	for _, tok := range tokens {
		if tok.Type == token.CommentType {
			continue
		}
		if tok.Type == token.MappingKeyType {
			return nil, tok,
				errors.New("a key that begins with ? is not supported; a text that begins with ? needs quotes")
		}
		seen = append(seen, tok)
		n.add(seen)
		paths += n.pathBytes()
		switch {
		case len(n.open) > maxLevels:
			return nil, tok, fmt.Errorf("must not be nested deeper than %d levels", maxLevels)
		case paths > maxPaths:
			return nil, tok,
				fmt.Errorf("must not have such long keys: the paths of all values, such as watch[0].resources[1], "+
					"must have less than %v together", Bytes(maxPaths))
		}
	}
	return tokens, nil, nil
}

func at(line, column int) *token.Token {
	return &token.Token{Position: &token.Position{Line: line, Column: column}}
}

// blankLines returns the line that follows too many blank ones, 0 if there is none.
func blankLines(data []byte) int {
	blank := 0
	for n, line := range splitLines(data) {
		blank++
		if strings.TrimSpace(line) != "" {
			blank = 0
		}
		if blank > maxBlank {
			return n + 1
		}
	}
	return 0
}

// nesting counts the levels that the parser has open after each token. It is an upper bound: where
// the parser's rules are not those of YAML, a level stays open.
type nesting struct{ open []level }

// level is an open list or mapping.
type level struct {
	place

	path int // bytes of the path to its values
}

type place struct {
	kind   levelKind
	column int
}

type levelKind uint8

const (
	blockMapping levelKind = iota
	blockList              // may begin in the column of the mapping that it is a value of
	flowMapping
	flowList
)

func (k levelKind) flow() bool { return k >= flowMapping }

// index is the most bytes of the index of an item in a path, with brackets.
const index = len("[262144]")

func (n *nesting) pathBytes() int {
	if len(n.open) == 0 {
		return 1
	}
	return n.open[len(n.open)-1].path
}

// add adds the last of the tokens.
func (n *nesting) add(tokens token.Tokens) {
	last := len(tokens) - 1
	tok := tokens[last]
	column := tok.Position.Column
	switch tok.Type {
	case token.SequenceStartType:
		n.push(flowList, column, index)
	case token.MappingStartType:
		n.push(flowMapping, column, 0)
	case token.SequenceEndType:
		n.closeFlow(flowList, column)
	case token.MappingEndType:
		n.closeFlow(flowMapping, column)
	case token.CollectEntryType:
		if i := n.flowAt(); i >= 0 {
			n.open = n.open[:i+1]
		}
	case token.SequenceEntryType:
		n.block(blockList, tokens, last, index)
	case token.MappingValueType:
		if last > 0 {
			n.block(blockMapping, tokens, last-1, len(tokens[last-1].Value)+len(".''"))
		}
	case token.DocumentHeaderType, token.DocumentEndType:
		n.open = nil
	}
}

func (n *nesting) push(kind levelKind, column, path int) {
	n.open = append(n.open, level{place: place{kind, column}, path: n.pathBytes() + path})
}

// popDeeper closes the levels that begin right of a column.
func (n *nesting) popDeeper(column int) {
	for len(n.open) > 0 && n.open[len(n.open)-1].column > column {
		n.open = n.open[:len(n.open)-1]
	}
}

// pop closes the innermost level if it has a place.
func (n *nesting) pop(at place) bool {
	is := len(n.open) > 0 && n.open[len(n.open)-1].place == at
	if is {
		n.open = n.open[:len(n.open)-1]
	}
	return is
}

// flowAt returns the index of the innermost flow list or mapping, -1 if there is none.
func (n *nesting) flowAt() int {
	for i := len(n.open) - 1; i >= 0; i-- {
		if n.open[i].kind.flow() {
			return i
		}
	}
	return -1
}

func (n *nesting) closeFlow(kind levelKind, column int) {
	i := n.flowAt()
	if i < 0 || n.open[i].kind != kind {
		return // a syntax error
	}
	for j := i + 2; kind == flowMapping && j < len(n.open); j++ {
		if n.open[j].column == column { // the parser ends that mapping only
			n.open = n.open[:j]
			return
		}
	}
	n.open = n.open[:i]
}

// block opens the level of an item of a list, or of a key of a mapping. It closes the level of the
// item or key before it in the same list or mapping.
func (n *nesting) block(kind levelKind, tokens token.Tokens, at, path int) {
	first, nested := n.begin(kind, tokens, at)
	column := tokens[at].Position.Column
	if n.flowAt() < 0 && !nested {
		n.popDeeper(column)
		for kind == blockMapping && n.pop(place{blockList, column}) {
		}
		n.pop(place{kind, column})
	}
	for _, tok := range tokens[first:at] { // these may be in other lines
		column = min(column, tok.Position.Column)
	}
	n.push(kind, column, path)
}

// begin returns the first token of an item or key: that of its tag, anchor or alias. nested reports
// whether the parser takes it as part of the value before it, whatever its column is.
func (n *nesting) begin(kind levelKind, tokens token.Tokens, at int) (first int, nested bool) {
	first = at
	for first > 0 {
		switch before := tokens[first-1].Type; {
		case before == token.TagType, before == token.AliasType:
			first--
		case first > 1 && tokens[first-2].Type == token.AnchorType:
			first -= 2
		default:
			// The parser takes a key in the column of the dash of an empty item as that item.
			return first, first < at || kind == blockMapping && before == token.SequenceEntryType &&
				tokens[first-1].Position.Column == tokens[first].Position.Column
		}
	}
	return first, first < at
}
