package filter

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"
)

const (
	// hidden is the variable that holds the evaluation. The macros changed and changedOnly expand
	// to calls of the function ask with it. No expression can contain these names.
	hidden = "@delta"
	ask    = "@ask"

	// maxExpression is the maximum length of an expression, in characters.
	maxExpression = 16 << 10
	// maxCost limits one evaluation, in CEL's units: a few milliseconds, or some tens of them if
	// strings are built in loops.
	maxCost = 100_000
	// bytesPerCost is the number of compared bytes that cost one unit: they take about as long as
	// other operations of that cost.
	bytesPerCost = 64
)

// expression is a compiled expression. It is safe for concurrent use.
type expression struct {
	program   cel.Program
	questions []question
	asks      []Ask // the call of each question

	env     *cel.Env
	checked *cel.Ast
}

// compile type-checks an expression. Its errors are *ExpressionError, joined if there are several.
func compile(text string) (*expression, error) {
	x := &expression{}
	env, err := cel.NewEnv(
		cel.Variable("op", cel.StringType),
		cel.Variable("before", cel.DynType),
		cel.Variable("after", cel.DynType),
		cel.Variable("resource", cel.StringType),
		cel.Variable(namespaceVariable, cel.StringType),
		cel.Variable("name", cel.StringType),
		cel.Variable("labels", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable(hidden, cel.DynType),
		cel.Function(ask,
			cel.Overload(ask, []*cel.Type{cel.DynType, cel.IntType}, cel.BoolType, cel.BinaryBinding(x.answer))),
		cel.Macros(
			cel.GlobalVarArgMacro("changed", x.macro(func(paths []string) (question, error) {
				if len(paths) != 1 {
					return nil, errors.New(`changed takes one path, as in changed("spec")`)
				}
				return newChanged(paths[0])
			})),
			cel.GlobalVarArgMacro("changedOnly", x.macro(func(paths []string) (question, error) {
				if len(paths) == 0 {
					return nil,
						errors.New(
							`changedOnly takes one or more paths, as in changedOnly("status", "metadata.annotations")`)
				}
				return newChangedOnly(paths)
			})),
		),
		cel.OptionalTypes(),
		ext.Strings(),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(maxExpression),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare CEL: %w", err)
	}
	checked, issues := env.Compile(withNamespace(text))
	if issues.Err() != nil {
		return nil, expressionErrors(issues.Errors())
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) {
		msg := fmt.Sprintf("has type %s, want bool", t)
		if t.IsExactType(cel.DynType) {
			msg = "may have any type, want bool: compare it with something, as in after.spec.paused == true"
		}
		return nil, &ExpressionError{Line: 1, Column: 1, Message: msg}
	}
	x.env, x.checked = env, checked
	x.program, err = env.Program(checked,
		cel.EvalOptions(cel.OptOptimize),
		cel.CostLimit(maxCost),
		cel.CostTracking(costs{}),
	)
	if err != nil {
		// Only invalid constants remain after the check: a regular expression, a number.
		return nil, &ExpressionError{Line: 1, Column: 1, Message: err.Error()}
	}
	return x, nil
}

// macro replaces a call with literal paths by a call of ask with the index of its question.
func (x *expression) macro(make func(paths []string) (question, error)) cel.MacroFactory {
	return func(h cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
		var paths []string
		for _, arg := range args {
			path, ok := literal(arg)
			if !ok {
				return nil, h.NewError(arg.ID(), `a path must be a quoted string, as in changed("spec")`)
			}
			paths = append(paths, path)
		}
		q, err := make(paths)
		if err != nil {
			var wrong *pathError
			if errors.As(err, &wrong) {
				return nil, h.NewError(args[wrong.index].ID(), wrong.Error())
			}
			return nil, h.NewError(h.NewIdent(hidden).ID(), err.Error()) // at the call
		}
		_, only := q.(*changedOnly)
		x.questions, x.asks = append(x.questions, q), append(x.asks, Ask{Only: only, Paths: paths})
		return h.NewCall(ask, h.NewIdent(hidden), h.NewLiteral(types.Int(len(x.questions)-1))), nil
	}
}

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// answer implements the function ask. It evaluates each question once per delta.
func (x *expression) answer(delta, number ref.Val) ref.Val {
	e, ok := delta.(*evaluation)
	i, okay := number.(types.Int)
	if !ok || !okay || i < 0 || int(i) >= len(e.answers) {
		return types.NewErr("no such overload")
	}
	e.compared = e.answers[i] == unasked
	if e.compared {
		before, after, err := e.bothJSON()
		if err != nil {
			return types.WrapErr(err)
		}
		yea, err := x.questions[i].ask(before, after)
		if err != nil {
			return types.WrapErr(err) // repeated if it is asked again
		}
		e.answers[i] = no
		if yea {
			e.answers[i] = yes
		}
	}
	return types.Bool(e.answers[i] == yes)
}

// costs estimates the cost of ask and of operators that read a whole object or array: CEL counts
// only their members, or one unit in all.
type costs struct{}

// CallCost implements cost.ActualCostEstimator.
func (costs) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	read := 0
	switch function {
	case ask:
		e, ok := args[0].(*evaluation)
		if !ok {
			return nil
		}
		if e.compared {
			read = len(e.before.raw) + len(e.after.raw)
		}
	case operators.Equals, operators.NotEquals, operators.Add:
		read = sizeOf(args[0]) + sizeOf(args[1])
	case operators.In:
		if list, ok := args[1].(*listing); ok {
			read = len(list.raw)
		}
	}
	if function != ask && read == 0 {
		return nil // CEL's own estimate
	}
	cost := 1 + uint64(read)/bytesPerCost
	return &cost
}

// sizeOf returns the number of bytes of a JSON object or array, 0 for other values.
func sizeOf(v ref.Val) int {
	switch v := v.(type) {
	case *mapping:
		return len(v.raw)
	case *listing:
		return len(v.raw)
	}
	return 0
}

// holds evaluates the expression.
func (x *expression) holds(e *evaluation) (bool, error) {
	out, _, err := x.program.Eval(e)
	if err != nil {
		return false, err
	}
	b, ok := out.(types.Bool)
	if !ok {
		return false, errNoBool
	}
	return bool(b), nil
}

var errNoBool = errors.New("not a bool")

// kindOf returns the kind of an error without its text, which may contain values of the object.
func kindOf(err error) string {
	var cancelled interpreter.EvalCancelledError
	switch text := err.Error(); {
	case errors.As(err, &cancelled):
		return "cost"
	case errors.Is(err, errJSON):
		return "object"
	case strings.HasPrefix(text, "no such key"), strings.HasPrefix(text, "no such attribute"):
		return "no_such_key"
	case strings.HasPrefix(text, "no such overload"), strings.HasPrefix(text, "unsupported"):
		return "type"
	case strings.HasPrefix(text, "index out of bounds"):
		return "index"
	}
	return "other"
}

func expressionErrors(found []*cel.Error) error {
	var errs []error
	for _, e := range found {
		message, _, _ := strings.Cut(e.Message, " (in container")
		message = strings.ReplaceAll(strings.TrimPrefix(message, "Syntax error: "), namespaceVariable, "namespace")
		if strings.HasPrefix(message, "undeclared reference to") {
			message += `; available: op, before, after, resource, namespace, name, labels, changed("path") and changedOnly("path", …)`
		}
		errs = append(errs, &ExpressionError{
			Line:    max(e.Location.Line(), 1),
			Column:  max(e.Location.Column(), 0) + 1,
			Message: message,
		})
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
