package relay

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Slack's limits, in characters after escaping.
const (
	maxSection  = 3000  // text of a section block (https://docs.slack.dev/reference/block-kit/blocks/section-block)
	maxMessage  = 12000 // all sections; Slack documents 40,000, and refuses blocks far below that
	maxSummary  = 300   // text of a notification
	maxGathered = 10    // events in one message
	lineWidth   = 160   // a line of a difference
	maxManagers = 3
)

// section is the form of one event in a message.
type section struct {
	summary string // plain text
	head    string // mrkdwn
	diff    string // mrkdwn; "": nothing to show
}

func (s *section) size() int { return utf8.RuneCountInString(s.head) + utf8.RuneCountInString(s.diff) }

func describe(e *consume.Event) (*section, error) {
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + e.Name
	}
	verb := verbOf(e)
	s := &section{summary: cutText(strings.Join(strings.Fields(e.Kind+" "+name+" "+verb), " "), maxSummary)}
	head := fmt.Sprintf("*%s* %s %s", mrkdwn(e.Kind), code(name), verb)
	if by := managers(e.Data.ChangedBy); len(by) > 0 && e.Op != consume.Deleted && e.Op != consume.Left {
		quoted := make([]string, len(by))
		for i, m := range by {
			quoted[i] = code(m)
		}
		head += " by " + strings.Join(quoted, ", ")
		s.summary = cutText(s.summary+" by "+strings.Join(by, ", "), maxSummary)
	}
	if e.Cluster != "" {
		head += " in " + code(e.Cluster)
	}
	if e.Data.Inferred {
		head += " (found by comparing lists)"
	}
	s.head = head
	lines, err := difference(e)
	if err != nil {
		return nil, err
	}
	s.diff = codeBlock(lines, maxSection, "see "+howToSee(e))
	return s, nil
}

func verbOf(e *consume.Event) string {
	verbs := map[consume.Op]string{
		consume.Created: "was created",
		consume.Updated: "was updated",
		consume.Deleted: "was deleted",
		consume.Read:    "exists (from a snapshot)",
		consume.Entered: "began to match the selector",
		consume.Left:    "ceased to match the selector",
	}
	return cmp.Or(verbs[e.Op], "changed")
}

func managers(changes []consume.Change) []string {
	var out []string
	for _, c := range changes {
		if m := cutText(c.Manager, 60); m != "" && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	if n := len(out) - maxManagers; n > 0 {
		out = append(out[:maxManagers], fmt.Sprintf("%d more", n))
	}
	return out
}

func difference(e *consume.Event) ([]string, error) {
	var b bytes.Buffer
	p := console.New(&terminal.Output{Writer: &b, Width: lineWidth}, console.Options{
		View:     console.Diff,
		Reads:    true,
		Location: time.UTC,
	})
	if err := p.Print(e); err != nil {
		return nil, err
	}
	if err := p.Finish(); err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") { // the lines before are date and event
			out = append(out, line[2:])
		}
	}
	return out, nil
}

func howToSee(e *consume.Event) string {
	cmd := "kubecdc tail " + e.GroupResource() + "/" + e.Name
	if e.Namespace != "" {
		cmd += " -n " + e.Namespace
	}
	if !e.Time.IsZero() {
		cmd += " --since " + e.Time.UTC().Truncate(time.Second).Format(time.RFC3339)
	}
	return code(cmd + " --diff")
}

// codeBlock formats lines as a code block of at most limit characters. If it omits some, a line
// below has their number and hint.
func codeBlock(lines []string, limit int, hint string) string {
	if len(lines) == 0 {
		return ""
	}
	const open, shut = "```\n", "```"
	limit -= len(open) + len(shut) + 64 + utf8.RuneCountInString(hint) // room for the line below
	var b strings.Builder
	b.WriteString(open)
	used, shown := 0, 0
	for _, line := range lines {
		text := mrkdwn(line) + "\n"
		n := utf8.RuneCountInString(text)
		if used+n > limit {
			break
		}
		b.WriteString(text)
		used += n
		shown++
	}
	b.WriteString(shut)
	switch left := len(lines) - shown; {
	case left == 1:
		fmt.Fprintf(&b, "\n_1 more line: %s_", hint)
	case left > 1:
		fmt.Fprintf(&b, "\n_%d more lines: %s_", left, hint)
	}
	return b.String()
}

// mrkdwn escapes & < > for mrkdwn, and replaces backticks, which would end the code around them.
func mrkdwn(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "`", "\u02cb").Replace(text)
}

// code returns text as inline code, in which Slack ignores links and emoji.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + mrkdwn(text) + "`"
}

func cutText(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit-1]) + "…"
}

func blocksOf(sections []*section) (blocks []slack.Block, text string) {
	add := func(mrkdwn string) {
		if mrkdwn == "" {
			return
		}
		t := slack.NewTextBlockObject(slack.MarkdownType, mrkdwn, false, true)
		blocks = append(blocks, slack.NewSectionBlock(t, nil, nil))
	}
	for _, s := range sections {
		add(s.head)
		add(s.diff)
	}
	text = sections[0].summary
	if n := len(sections) - 1; n > 0 {
		text = fmt.Sprintf("%s, and %d more", text, n)
	}
	return blocks, mrkdwn(text)
}
