package certainty

import "fmt"

// Level says how certain the state of a scope is at a moment. The zero value is not one.
type Level int

// The levels, from the best to the worst.
const (
	// Exact: the record proves that it is complete at the moment.
	Exact Level = iota + 1
	// Late: the scope was not observed at the moment. Changes have later times.
	Late
	// Uncertain: versions are missing, or may be.
	Uncertain
	// Unknown: the record proves nothing about the moment.
	Unknown
)

// String returns the word for l: exact, late, uncertain or unknown.
func (l Level) String() string {
	switch l {
	case Exact:
		return "exact"
	case Late:
		return "late"
	case Uncertain:
		return "uncertain"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Level) UnmarshalText(text []byte) error {
	for _, known := range []Level{Exact, Late, Uncertain, Unknown} {
		if known.String() == string(text) {
			*l = known
			return nil
		}
	}
	return fmt.Errorf("certainty %q is not known", text)
}
