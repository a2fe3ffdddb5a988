{{/*
The permissions that a component's agent needs, as `kubecdc rbac` prints them: {root, component} → {NAMESPACE: rules}; "" is the
ClusterRole. The tests compare the two for every set of values.
*/}}
{{- define "kubecdc.rules" -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $c := include "kubecdc.config" . | fromYaml -}}
{{- $known := include "kubecdc.known" $root | fromJson -}}
{{- $clusterScoped := $root.Files.Get "files/cluster-scoped.json" | fromJsonArray -}}
{{- $access := dict -}}
{{- $pods := false -}}{{- $foreign := false -}}
{{- $rules := list -}}
{{- range $c.watch -}}
{{- $rules = append $rules (include "kubecdc.rule" (dict "rule" . "known" $known) | fromJson) -}}
{{- end -}}
{{- /* Events are the same objects in two groups, and read in the one in which the first rule takes them. */ -}}
{{- $takesEvents := false -}}{{- $eventGroup := "" -}}
{{- range $r := $rules -}}
{{- range $group := list "" "events.k8s.io" -}}
{{- if and (not $takesEvents) (include "kubecdc.takes" (dict "rule" $r "group" $group "version" "v1" "resource" "events")) -}}
{{- $takesEvents = true -}}{{- $eventGroup = $group -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* The classes of group and resource that each rule's patterns match. */ -}}
{{- $classes := dict -}}{{- $of := list -}}
{{- range $r := $rules -}}
{{- $own := dict -}}
{{- if include "kubecdc.takes" (dict "rule" $r "group" "" "version" "v1" "resource" "pods") -}}{{- $pods = true -}}{{- end -}}
{{- range $p := $r.resources -}}
{{- if include "kubecdc.foreign" $p -}}{{- $foreign = true -}}{{- end -}}
{{- range $group := ternary (list "*") $p.groups $p.any -}}
{{- $wanted := true -}}
{{- if and (eq $p.resource "events") (has $group (list "" "events.k8s.io")) -}}
{{- if not $takesEvents -}}{{- $wanted = false -}}
{{- else if and (eq (len $p.groups) 1) (not (include "kubecdc.takes" (dict "rule" $r "group" $group "version" "v1" "resource" "events"))) -}}{{- $wanted = false -}}
{{- end -}}
{{- $group = $eventGroup -}}
{{- end -}}
{{- if and (ne $p.resource "*") (include "kubecdc.excepts" (dict "rule" $r "group" $group "resource" $p.resource)) -}}{{- $wanted = false -}}{{- end -}}
{{- if $wanted -}}
{{- $_ := set $own (printf "%s\t%s" $group $p.resource) (dict "group" $group "resource" $p.resource) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $classes = merge $classes $own -}}
{{- $of = append $of $own -}}
{{- end -}}
{{- /* One informer reads the resources that two classes have in common, for the rules of both. */ -}}
{{- $all := deepCopy $classes -}}
{{- range $a := $classes -}}
{{- range $b := $classes -}}
{{- $group := ternary $b.group $a.group (eq $a.group "*") -}}
{{- $resource := ternary $b.resource $a.resource (eq $a.resource "*") -}}
{{- if and (has $b.group (list "*" $group)) (has $b.resource (list "*" $resource)) -}}
{{- $_ := set $all (printf "%s\t%s" $group $resource) (dict "group" $group "resource" $resource) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $class := $all -}}
{{- $namespaced := not (and (has $class.resource $clusterScoped) (has $class.group (get $known $class.resource))) -}}
{{- $takers := list -}}
{{- range $j, $r := $rules -}}
{{- $takes := false -}}
{{- range $own := index $of $j -}}
{{- if and (has $own.group (list "*" $class.group)) (has $own.resource (list "*" $class.resource)) -}}{{- $takes = true -}}{{- end -}}
{{- end -}}
{{- if and $takes (or $namespaced $r.clusterwide) (not (include "kubecdc.excepts" (dict "rule" $r "group" $class.group "resource" $class.resource))) -}}
{{- $takers = append $takers $r -}}
{{- end -}}
{{- end -}}
{{- $takers = include "kubecdc.reachable" (dict "rules" $takers "namespaced" $namespaced) | fromJsonArray -}}
{{- if and (eq $component "agent") (ne $root.Values.mode "cluster") (eq $class.resource "nodes") (eq $class.group "") -}}{{- $takers = list -}}{{- end -}}
{{- if $takers -}}
{{- $within := dict -}}{{- $literal := true -}}
{{- range $r := $takers -}}
{{- if not $r.literal -}}{{- $literal = false -}}{{- end -}}
{{- range $r.namespaces -}}{{- $_ := set $within . (append (get $within . | default list) $r) -}}{{- end -}}
{{- end -}}
{{- if not $literal -}}{{- $within = dict "" $takers -}}{{- end -}}
{{- /* The Leases in kube-node-lease belong to nodes. */ -}}
{{- if and (eq $component "node") (eq $class.resource "leases") (eq $class.group "coordination.k8s.io") -}}{{- $within = dict "kube-node-lease" $takers -}}{{- end -}}
{{- range $namespace, $in := $within -}}
{{- if $namespace -}}{{- $in = include "kubecdc.reachable" (dict "rules" $in "namespaced" false) | fromJsonArray -}}{{- end -}}
{{- $only := include "kubecdc.onlyNameOf" (dict "rules" $in) -}}
{{- $_ := set $access (printf "%s\t%s\t%s\t%s" $namespace $class.group $only $class.resource) (dict "namespace" $namespace "group" $class.group "name" $only "resource" $class.resource) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $foreign -}}
{{- /* The agent follows which resources are defined. */ -}}
{{- $_ := set $access "\tapiextensions.k8s.io\t\tcustomresourcedefinitions" (dict "namespace" "" "group" "apiextensions.k8s.io" "name" "" "resource" "customresourcedefinitions") -}}
{{- $_ := set $access "\tapiregistration.k8s.io\t\tapiservices" (dict "namespace" "" "group" "apiregistration.k8s.io" "name" "" "resource" "apiservices") -}}
{{- end -}}
{{- if and $pods (eq $component "agent") (ne $root.Values.mode "cluster") -}}
{{- /* The central agent follows the deletions of nodes. */ -}}
{{- $_ := set $access "\t\t\tnodes" (dict "namespace" "" "group" "" "name" "" "resource" "nodes") -}}
{{- end -}}
{{- $kubeSystem := dict "apiGroups" (list "") "resources" (list "namespaces") "resourceNames" (list "kube-system") "verbs" (list "get") -}}
{{- $rules = dict "" (list $kubeSystem) -}}
{{- $last := "" -}}
{{- range $key := keys $access | sortAlpha -}}
{{- $b := get $access $key -}}
{{- $covered := false -}}
{{- range $other, $a := $access -}}
{{- if and (ne $other $key) (or (not $a.namespace) (eq $a.namespace $b.namespace)) (has $a.group (list "*" $b.group)) (has $a.resource (list "*" $b.resource)) (or (not $a.name) (eq $a.name $b.name)) -}}
{{- $covered = true -}}
{{- end -}}
{{- end -}}
{{- if not $covered -}}
{{- $of := get $rules $b.namespace | default list -}}
{{- $at := printf "%s\t%s\t%s" $b.namespace $b.group $b.name -}}
{{- if eq $at $last -}}
{{- $rule := last $of -}}
{{- $_ := set $rule "resources" (append $rule.resources $b.resource) -}}
{{- else -}}
{{- $rule := dict "apiGroups" (list $b.group) "resources" (list $b.resource) "verbs" (list "list" "watch") -}}
{{- if $b.name -}}{{- $_ := set $rule "resourceNames" (list $b.name) -}}{{- end -}}
{{- $_ := set $rules $b.namespace (append $of $rule) -}}
{{- end -}}
{{- $last = $at -}}
{{- end -}}
{{- end -}}
{{- with ($c.checkpoint | default dict).configMap -}}
{{- $name := default "kubecdc-checkpoint" .name -}}
{{- $known := dict "apiGroups" (list "") "resources" (list "configmaps") "resourceNames" (list $name) "verbs" (list "get" "update") -}}
{{- $create := dict "apiGroups" (list "") "resources" (list "configmaps") "verbs" (list "create") -}}
{{- $own := list $known $create -}}
{{- if eq $component "node" -}}
{{- /* The agents of all nodes share the role. */ -}}
{{- $own = list (dict "apiGroups" (list "") "resources" (list "configmaps") "verbs" (list "get" "update" "create")) -}}
{{- end -}}
{{- $_ := set $rules .namespace (concat (get $rules .namespace | default list) $own) -}}
{{- end -}}
{{- if and (eq $component "agent") ($c.leaderElection).enabled -}}
{{- $lease := $c.leaderElection -}}
{{- $namespace := default $root.Release.Namespace $lease.namespace -}}
{{- $hold := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "resourceNames" (list $lease.lease) "verbs" (list "get" "update") -}}
{{- $create := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "verbs" (list "create") -}}
{{- $_ := set $rules $namespace (concat (get $rules $namespace | default list) (list $hold $create)) -}}
{{- end -}}
{{- toJson $rules -}}
{{- end -}}

{{/*
The one name that a field selector permits, if the API server authorizes by it: not a name with a slash, and not one that cannot be in a
path.
*/}}
{{- define "kubecdc.onlyName" -}}
{{- $only := "" -}}
{{- range $term := splitList "," . -}}
{{- if and (not $only) (regexMatch "^metadata\\.name==?[^=]" $term) -}}
{{- $only = regexReplaceAll "^metadata\\.name==?" $term "" -}}
{{- end -}}
{{- end -}}
{{- if and $only (not (regexMatch "[/%\\\\]" $only)) (not (has $only (list "." ".."))) -}}{{- $only -}}{{- end -}}
{{- end -}}

{{/* The one name in the request that reads all of the rules at a time: {rules}. */}}
{{- define "kubecdc.onlyNameOf" -}}
{{- $selector := (first .rules).fieldSelector -}}
{{- $same := true -}}
{{- range rest .rules -}}
{{- if ne .fieldSelector $selector -}}{{- $same = false -}}{{- end -}}
{{- end -}}
{{- if gt (len .rules) 1 -}}
{{- range $term := splitList "," $selector -}}
{{- if not (regexMatch "^metadata\\.(name|namespace)!?=" $term) -}}{{- $same = false -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if $same -}}{{- include "kubecdc.onlyName" $selector -}}{{- end -}}
{{- end -}}

{{/*
The rules, all for one resource, that can take any of its objects: {rules, namespaced}. Rules after one without limits are left out, and
of rules with the same limits the first is taken.
*/}}
{{- define "kubecdc.reachable" -}}
{{- $namespaced := .namespaced -}}
{{- $out := list -}}{{- $seen := dict -}}{{- $whole := false -}}
{{- range $r := .rules -}}
{{- $everywhere := or (not $namespaced) (not $r.namespaces) (and (has "*" $r.namespaces) (not (regexMatch "(^|,)!" (join "," $r.namespaces)))) -}}
{{- $limits := printf "%s\t%s\t%s" (ternary "" (join "," $r.namespaces) $everywhere) $r.labelSelector $r.fieldSelector -}}
{{- if and (not $whole) (not (hasKey $seen $limits)) -}}
{{- $out = append $out $r -}}
{{- $_ := set $seen $limits true -}}
{{- $whole = eq $limits "\t\t" -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* Reports whether a rule leaves all of a class out, whatever the version: {rule (parsed), group, resource}. "1" or nothing. */}}
{{- define "kubecdc.excepts" -}}
{{- $group := .group -}}{{- $resource := .resource -}}{{- $out := "" -}}
{{- range .rule.except -}}
{{- if and (not .version) (or .any (has $group .groups)) (has .resource (list "*" $resource)) -}}{{- $out = "1" -}}{{- end -}}
{{- end -}}
{{- $out -}}
{{- end -}}

{{/* Reports whether a pattern (parsed) can name a resource that Kubernetes itself does not serve. "1" or nothing. */}}
{{- define "kubecdc.foreign" -}}
{{- if .any -}}1
{{- else -}}
{{- range .groups -}}
{{- if not (has . (list "" "admissionregistration.k8s.io" "apiextensions.k8s.io" "apiregistration.k8s.io" "apps" "authentication.k8s.io" "authorization.k8s.io" "autoscaling" "batch" "certificates.k8s.io" "coordination.k8s.io" "discovery.k8s.io" "events.k8s.io" "extensions" "flowcontrol.apiserver.k8s.io" "internal.apiserver.k8s.io" "networking.k8s.io" "node.k8s.io" "policy" "rbac.authorization.k8s.io" "resource.k8s.io" "scheduling.k8s.io" "storage.k8s.io" "storagemigration.k8s.io")) -}}1{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Reports whether all resources of all groups are allowed. "1" or nothing. */}}
{{- define "kubecdc.everything" -}}
{{- $root := . -}}
{{- range $component := include "kubecdc.components" . | fromJsonArray -}}
{{- range $namespace, $rules := include "kubecdc.rules" (dict "root" $root "component" $component) | fromJson -}}
{{- range $rules -}}
{{- if and (has "*" .apiGroups) (has "*" .resources) -}}1{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
