package filter

import (
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/kubecdc/kubecdc/internal/object"
)

// NeverHolds reports whether the filter's expression is false for every delta of an op, whatever
// the object is: probably a mistake. It returns false if op alone does not decide, or if there is
// no expression.
func (f *Filter) NeverHolds(op object.Op) bool {
	if f.where == nil {
		return false
	}
	program, err := f.where.env.Program(f.where.checked, cel.EvalOptions(cel.OptPartialEval), cel.CostLimit(maxCost))
	if err != nil {
		return false
	}
	var unknown []*cel.AttributePatternType
	for _, v := range f.where.env.Variables() {
		if v.Name() != "op" {
			unknown = append(unknown, cel.AttributePattern(v.Name()))
		}
	}
	vars, err := cel.PartialVars(map[string]any{"op": string(op)}, unknown...)
	if err != nil {
		return false
	}
	out, _, err := program.Eval(vars)
	return err == nil && out == types.False
}

// Ask is a call in an expression: of changedOnly, or of changed, with its paths.
type Ask struct {
	Only  bool
	Paths []string
}

// Asks returns the calls in the filter's expression, in CEL's parsing order.
func (f *Filter) Asks() []Ask {
	if f.where == nil {
		return nil
	}
	return slices.Clone(f.where.asks)
}
