package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/past/record"
)

// completionLimit limits the time that a completion may read the record.
const completionLimit = 2 * time.Second

// completeObjects completes resources, including custom ones from the record, and then the names of
// their objects.
func (f *askFlags) completeObjects(
	cmd *cobra.Command, args []string, typed string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	resource, name, slash := strings.Cut(typed, "/")
	switch {
	case slash:
		return f.completeNames(cmd, resource, resource+"/", name), cobra.ShellCompDirectiveNoFileComp
	case len(args) > 0 && !strings.ContainsAny(args[0], "/,"):
		return f.completeNames(cmd, args[0], "", typed), cobra.ShellCompDirectiveNoFileComp
	case len(args) > 0:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	out, directive := completeResources(cmd, nil, typed)
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	f.readForCompletion(cmd, func(ctx context.Context, r *record.Record) {
		words, _ := r.CustomNames(ctx) // partial on error: a completion cannot report errors
		for _, word := range words {
			if all := before + word; strings.HasPrefix(all, typed) && !slices.Contains(out, all) {
				out = append(out, all)
			}
		}
	})
	return out, directive
}

// completeNames completes the names of a resource's objects that start with typed. It prefixes each
// with before.
func (f *askFlags) completeNames(cmd *cobra.Command, resource, before, typed string) []cobra.Completion {
	var out []cobra.Completion
	f.readForCompletion(cmd, func(ctx context.Context, r *record.Record) {
		s, err := record.NewSelection([]string{resource}, f.namespace, "", f.cluster)
		if err != nil {
			return
		}
		s.ClusterUID = f.clusterUID
		if r.Resolve(ctx, s) != nil {
			return
		}
		for _, name := range r.ObjectNames(ctx, s) {
			if strings.HasPrefix(name, typed) {
				out = append(out, before+name)
			}
		}
	})
	return out
}

// completeNamespaces completes the namespaces of the record, if they were captured, also in a list
// and after the ! that excludes one.
func (f *askFlags) completeNamespaces(
	cmd *cobra.Command, _ []string, typed string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	everywhere := *f
	everywhere.namespace = ""
	at := strings.LastIndexAny(typed, ",!") + 1
	return everywhere.completeNames(cmd, "namespaces", typed[:at], typed[at:]), cobra.ShellCompDirectiveNoFileComp
}

// readForCompletion calls read with the record of the flags. It prints nothing, because the user is
// typing.
func (f *askFlags) readForCompletion(cmd *cobra.Command, read func(context.Context, *record.Record)) {
	if readVariables(cmd) != nil {
		return
	}
	r, err := f.open(io.Discard)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	read(ctx, r)
}
