package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/screen/answers"
)

type blameFlags struct {
	askFlags
	at string
}

func newBlameCommand(stdout, stderr io.Writer) *cobra.Command {
	var f blameFlags
	cmd := &cobra.Command{
		Use:   "blame {RESOURCE/NAME | RESOURCE NAME}",
		Short: "Show who set each line of an object, and when",
		Long: `Show the YAML of an object at a moment. Before each line stands when its value was set, and by which field manager.

"<=" before a time: the value was there by then. The version that set it is not in the record: it is older than the
record, was withheld by a filter, or is in a gap. Or an agent found it late, because nobody had observed the object.
"?": who set it is not known. An element that is inserted into a list is new, and those after it keep their lines. In a
text of several lines, such as a file in a ConfigMap, each line has its own time.

` + momentHelp + `

` + certaintyHelp,
		Example: `  kubecdc blame deploy/web -n shop
  kubecdc blame deploy web -n shop --at 14:05 -o wide
  kubecdc blame cm/settings -n shop -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := parseMoment("at", f.at, stderr)
			if err != nil {
				return err
			}
			return f.answer(cmd.Context(), args, stdout, stderr, func(q *answers.Question) error {
				return q.Blame(cmd.Context(), at)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.at, "at", "now", "the `moment`")
	f.add(cmd, objectFormats())
	completeWords(cmd, "at", "now", "10m", "1h", "24h")
	return cmd
}
