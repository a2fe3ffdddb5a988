package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubecdc/kubecdc/internal/wording"
)

// flagsForMoments are the flags of other commands for moments, and those that may be meant by them.
func flagsForMoments() map[string][]string {
	return map[string][]string{
		"at":    {"until"},
		"from":  {"since", "at"},
		"since": {"from", "at"},
		"to":    {"until", "at"},
		"until": {"to", "at"},
	}
}

// withFlagHint adds to the error about an unknown flag which one of the command was probably meant.
func withFlagHint(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	name, has := unknown.GetSpecifiedName(), func(name string) bool { return cmd.Flags().Lookup(name) != nil }
	others, isMoment := flagsForMoments()[name]
	if k := slices.IndexFunc(others, has); k >= 0 {
		return fmt.Errorf("%w; did you mean --%s?", err, others[k])
	}
	if isMoment {
		if cmd.Name() == "diff" {
			return fmt.Errorf("%w; the moments are arguments: kubecdc diff 14:00 14:10", err)
		}
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if near := wording.Nearest(name, known); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}
