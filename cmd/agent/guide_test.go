package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var (
	guideBlock   = regexp.MustCompile("(?s)```console\n(.*?)```")
	guideMoment  = regexp.MustCompile(`^\d\d:\d\d$`)
	guideRollout = regexp.MustCompile(`--with-events|cm/app\b|pvc/data\b`) // as ofRollout of test/walk
	guideAsks    = regexp.MustCompile(`^kubecdc (history|diff|blame|get) `)
	guideRecord  = regexp.MustCompile(`rv:812`) // of TestReplayFindsABug
)

// The commands of the guide that look back print what it shows. "..." stands for any lines. walk
// TestDocumentedCommands runs all of its commands.
func TestGuideOfTimeTravel(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/time-travel.md")
	if err != nil {
		t.Fatal(err)
	}
	kubecdc := linkKubecdc(t)
	used := map[string]bool{}
	for _, block := range guideBlock.FindAllStringSubmatch(string(guide), -1) {
		for _, shown := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			line, output, _ := strings.Cut(strings.TrimRight(shown, "\n")+"\n", "\n")
			if !guideAsks.MatchString(line) || guideRecord.MatchString(line) {
				continue
			}
			record := "record"
			if guideRollout.MatchString(line) {
				record = "rollout"
			}
			var args []string
			for _, arg := range argument.FindAllString(line, -1)[1:] {
				arg = strings.Trim(arg, `"'`)
				if guideMoment.MatchString(arg) {
					arg = "2026-11-20 " + arg
				}
				args = append(args, arg)
				if strings.HasPrefix(arg, "--") {
					used[arg] = true
				}
			}
			got := answerInUTC(t, kubecdc, append(args, "--bus", "file:testdata/"+record+".jsonl")...)
			wantCode := exitOK
			if regexp.MustCompile(`(?m)^kubecdc: --`).MatchString(output) {
				wantCode = exitFailed
			}
			printed := got.Out + got.Err
			if strings.HasPrefix(output, "at ") {
				printed = got.Err + got.Out
			}
			if got.Code != wantCode || !matchesShown(output, printed) {
				t.Errorf("$ %s\nthe guide shows:\n%s\nexit code %d, it prints:\n%s", line, output, got.Code, printed)
			}
		}
	}
	for _, flag := range []string{
		"--field", "--by", "--op", "--changed", "--no-status", "--with-events", "--for-apply", "--tz",
	} {
		if !used[flag] {
			t.Errorf("the guide shows no output with %s", flag)
		}
	}
}

// answerInUTC returns what a kubecdc prints where the time zone is UTC. The zone is that of the
// whole process, so it is one of its own.
func answerInUTC(t *testing.T, kubecdc string, args ...string) printed {
	t.Helper()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), kubecdc, args...)
	cmd.Env = append(os.Environ(), "TZ=UTC")
	cmd.Stdout = &out
	cmd.Stderr = &said
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return printed{out.String(), said.String(), cmd.ProcessState.ExitCode()}
}

// matchesShown reports whether a text begins with what a page shows, in which "..." is for any
// lines.
func matchesShown(shown, text string) bool {
	for i, part := range strings.Split(shown, "...\n") {
		at := strings.Index(text, part)
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}
