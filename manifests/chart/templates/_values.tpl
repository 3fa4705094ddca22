{{- /*
"oke.values": the values as JSON, with `configurations`, the monitoring's port and the captures of tasks applied.
*/ -}}
{{- define "oke.values" -}}
{{- $values := deepCopy .Values -}}
{{- $keys := (.Files.Get "addon/schema.json" | fromJson).properties -}}
{{- range .Values.configurations -}}
  {{- $key := get $keys .key | required (printf "configurations: there is no key %s; manifests/addon/schema.json lists all" .key) -}}
  {{- $path := get $key "x-chart-value" | splitList "." -}}
  {{- $at := $values -}}
  {{- range initial $path }}{{ $at = get $at . }}{{ end -}}
  {{- $_ := set $at (last $path) .value -}}
{{- end -}}
{{- if and (eq (toString $values.tasks) "true") (eq (toString $values.controller.enabled) "true") -}}
  {{- if not (hasKey $values.agent.settings "CAPTURES") }}{{ $_ := set $values.agent.settings "CAPTURES" "headers" }}{{ end -}}
{{- end -}}
{{- if eq (toString $values.monitoring.podMonitors) "true" -}}
  {{- range $program, $port := dict "agent" "9808" "controller" "9809" -}}
    {{- $settings := get (get $values $program) "settings" -}}
    {{- if not (hasKey $settings "METRICS_PORT") }}{{ $_ := set $settings "METRICS_PORT" $port }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- if $values.monitoring.tlsSecret -}}
  {{- range $program := list "agent" "controller" -}}
    {{- $_ := set (get (get $values $program) "settings") "METRICS_TLS_DIR" "/etc/oke-node-metrics" -}}
  {{- end -}}
{{- end -}}
{{- toJson $values -}}
{{- end -}}

{{- /*
"oke.parts": the components that are enabled, as JSON: folders of manifests, whose files the chart reads.
*/ -}}
{{- define "oke.parts" -}}
{{- $parts := list -}}
{{- range $part := list "tasks" "reboot" "host-files" "host-code" -}}
  {{- $key := replace "-f" "F" $part | replace "-c" "C" -}}
  {{- if eq (toString (get $ $key)) "true" }}{{ $parts = append $parts $part }}{{ end -}}
{{- end -}}
{{- if eq (toString .controller.enabled) "false" }}{{ $parts = list }}{{ end -}}
{{- if and (has "reboot" $parts) (not (has "tasks" $parts)) }}{{ fail "reboot needs tasks, too: set both to true (docs/node-tasks.md)" }}{{ end -}}
{{- if $parts }}{{ $parts = prepend $parts "operations" }}{{ end -}}
{{- toJson $parts -}}
{{- end -}}

{{- /*
"oke.image": the image's name, which must be set. The tag is the chart's version, unless another one is set.
*/ -}}
{{- define "oke.image" -}}
{{- $repository := required "image.repository is not set, and no registry publishes the image: build it with `make image`, push it to your registry, and set its name (docs/install.md, section Install step by step; add-on key imageRepository)" .values.image.repository -}}
{{- printf "%s:%s" $repository (.values.image.tag | default .version) -}}
{{- end -}}

{{- /*
"oke.agents": the DaemonSets of agents as JSON: a list of {name, pool, values}. That of all other nodes has no pool.
*/ -}}
{{- define "oke.agents" -}}
{{- $values := .values -}}
{{- $pools := $values.pools | default dict -}}
{{- if kindIs "string" $pools -}}
  {{- $json := printf "{\"pools\": %s}" $pools | fromJson -}}
  {{- with $json.Error }}{{ fail (printf "pools is not JSON: %s" .) }}{{ end -}}
  {{- $pools = $json.pools -}}
{{- end -}}
{{- if not (kindIs "map" $pools) }}{{ fail "pools is not a map of names to settings: {\"NAME\": {\"settings\": {\"KEY\": \"value\"}}}" }}{{ end -}}
{{- if and $pools (not $values.poolLabel) }}{{ fail "poolLabel is empty: it is the label by which pools select nodes" }}{{ end -}}
{{- $agents := list -}}
{{- if eq (toString $values.agent.enabled) "true" -}}
  {{- $agents = append $agents (dict "name" "oke-node-agent" "pool" "" "values" $values.agent) -}}
{{- end -}}
{{- range $name, $pool := $pools -}}
  {{- include "oke.pool.check" (dict "name" $name "pool" $pool "keys" $.keys) -}}
  {{- $pool := $pool | default dict -}}
  {{- $settings := dict -}}
  {{- range $all := list $values.agent.settings ($pool.settings | default dict) -}}
    {{- range $key, $value := $all }}{{ $_ := set $settings $key $value }}{{ end -}}
  {{- end -}}
  {{- $own := dict "settings" $settings -}}
  {{- range $field := list "healthRules" "kernelLog" "hpcPlugins" "tunables" "nodeSelector" "resources" -}}
    {{- $_ := set $own $field (get (hasKey $pool $field | ternary $pool $values.agent) $field) -}}
  {{- end -}}
  {{- $agents = append $agents (dict "name" (printf "oke-node-agent-%s" $name) "pool" ($pool.value | default $name) "values" $own) -}}
{{- end -}}
{{- $labels := list -}}
{{- range $agents -}}
  {{- if .pool -}}
    {{- if has .pool $labels }}{{ fail (printf "pools: two entries have the value %s" .pool) }}{{ end -}}
    {{- $labels = append $labels .pool -}}
  {{- end -}}
{{- end -}}
{{- toJson (dict "list" $agents "pools" $labels) -}}
{{- end -}}

{{- /*
"oke.pool.check": fails if an entry of `pools` is not valid. values.schema.json cannot check the add-on's form, which is JSON in a string.
*/ -}}
{{- define "oke.pool.check" -}}
{{- $at := printf "pools.%s" .name -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$" .name) -}}
  {{- fail (printf "%s: a pool's name has at most 40 lower-case letters, digits and hyphens; set `value` for another label" $at) -}}
{{- end -}}
{{- if not (or (kindIs "map" .pool) (kindIs "invalid" .pool)) }}{{ fail (printf "%s is not a map" $at) }}{{ end -}}
{{- $pool := .pool | default dict -}}
{{- range $field, $_ := $pool -}}
  {{- if not (has $field (list "value" "settings" "healthRules" "kernelLog" "hpcPlugins" "tunables" "nodeSelector" "resources")) -}}
    {{- fail (printf "%s: there is no field %s" $at $field) -}}
  {{- end -}}
{{- end -}}
{{- if not (regexMatch "^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$" (toString ($pool.value | default ""))) -}}
  {{- fail (printf "%s.value is not a label's value" $at) -}}
{{- end -}}
{{- range $key, $value := ($pool.settings | default dict) -}}
  {{- $schema := dict -}}
  {{- range $.keys }}{{ if eq (get . "x-chart-value") (printf "agent.settings.%s" $key) }}{{ $schema = . }}{{ end }}{{ end -}}
  {{- if not $schema }}{{ fail (printf "%s.settings: there is no setting %s" $at $key) }}{{ end -}}
  {{- $text := kindIs "string" $value | ternary $value (toJson $value) -}}
  {{- $choices := $schema.enum | default (list $text) -}}
  {{- if or (not (has $text $choices)) (not (regexMatch ($schema.pattern | default "") $text)) -}}
    {{- fail (printf "%s.settings.%s is not valid: %s" $at $key $text) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /*
"oke.patches": the overlay's patches as JSON, by "kind/name".
*/ -}}
{{- define "oke.patches" -}}
{{- $patches := dict -}}
{{- $folder := printf "overlays/%s" .cluster -}}
{{- if .cluster -}}
  {{- range (.files.Get (printf "%s/kustomization.yaml" $folder) | fromYaml).patches -}}
    {{- $patch := $.files.Get (printf "%s/%s" $folder .path) | fromYaml -}}
    {{- $_ := set $patches (printf "%s/%s" $patch.kind $patch.metadata.name) $patch -}}
  {{- end -}}
{{- end -}}
{{- toJson $patches -}}
{{- end -}}

{{- /*
"oke.takeover": the patch of a DaemonSet of agents as JSON. CNI_TAKEOVER of its settings outranks the overlay: takeover needs mounts, so
it is a patch and not a line of the file.
*/ -}}
{{- define "oke.takeover" -}}
{{- $set := toString (get .settings "CNI_TAKEOVER") -}}
{{- $of := eq .cluster "oke-vcn-native" | ternary "true" "false" -}}
{{- if and (hasKey .settings "CNI_TAKEOVER") (ne $set $of) -}}
  {{- eq $set "true" | ternary (.files.Get "overlays/oke-vcn-native/takeover.yaml" | fromYaml) dict | toJson -}}
{{- else -}}
  {{- toJson .patch -}}
{{- end -}}
{{- end -}}

{{- /*
"oke.workload": a DaemonSet or Deployment as YAML: `object` with the settings of its program, {image, patch, values, secret}.
*/ -}}
{{- define "oke.workload" -}}
{{- $object := .object -}}
{{- $template := $object.spec.template -}}
{{- $_ := set $template "spec" (include "oke.pod" (merge (dict "pod" $template.spec) .) | fromYaml) -}}
{{- range $variable := (first $template.spec.containers).env -}}
  {{- if hasKey $.values.settings $variable.name -}}
    {{- fail (printf "%s.settings.%s has no effect: the manifest sets this variable, which outranks the file" $.at $variable.name) -}}
  {{- end -}}
{{- end -}}
{{- toYaml $object -}}
{{- end -}}

{{- /*
"oke.agent": one DaemonSet of agents as YAML: `object`, which is the base's, with its pool's name, labels and nodes, or without the
nodes of all pools.
*/ -}}
{{- define "oke.agent" -}}
{{- $object := .object -}}
{{- $label := .label -}}
{{- $pod := $object.spec.template.spec -}}
{{- $settings := omit .agent.values.settings "CNI_TAKEOVER" -}}
{{- $patch := include "oke.takeover" (dict "settings" .agent.values.settings "patch" .patch "cluster" .cluster "files" .files) | fromJson -}}
{{- if .agent.pool -}}
  {{- $_ := set $object.metadata "name" .agent.name -}}
  {{- range $labels := list $object.metadata.labels $object.spec.selector.matchLabels $object.spec.template.metadata.labels $pod.nodeSelector -}}
    {{- $_ := set $labels $label $.agent.pool -}}
  {{- end -}}
  {{- range $volume := $pod.volumes -}}
    {{- if eq $volume.name "configuration" }}{{ $_ := set $volume.configMap "name" $.agent.name }}{{ end -}}
  {{- end -}}
{{- else if .pools -}}
  {{- $term := first $pod.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms -}}
  {{- $others := dict "key" $label "operator" "NotIn" "values" .pools -}}
  {{- $_ := set $term "matchExpressions" (append $term.matchExpressions $others) -}}
{{- end -}}
{{- $values := merge (dict "settings" $settings) (omit .agent.values "settings") -}}
{{- $mounts := list -}}
{{- range $part := concat (eq (toString .agent.values.tunables) "true" | ternary (list "tunables") list) (without .parts "operations" "tasks" "reboot") -}}
  {{- $mounts = append $mounts ($.files.Get (printf "%s/mounts.yaml" $part) | fromYaml) -}}
{{- end -}}
{{- $at := empty .agent.pool | ternary "agent" (printf "pools.%s" (trimPrefix "oke-node-agent-" .agent.name)) -}}
{{- include "oke.workload" (dict "object" $object "image" .image "patch" $patch "values" $values "secret" .secret "at" $at "mounts" $mounts) -}}
{{- end -}}

{{- /*
"oke.pod": a pod template's spec as YAML, with image, patch, port, resources and node selector. A patch's entries come first, as kustomize merges them.
*/ -}}
{{- define "oke.pod" -}}
{{- $pod := .pod -}}
{{- $patch := ((((.patch).spec).template).spec) | default dict -}}
{{- range $container := $pod.containers -}}
  {{- $_ := set $container "image" $.image -}}
  {{- range $of := $patch.containers -}}
    {{- if eq $of.name $container.name -}}
      {{- range $list := list "env" "volumeMounts" -}}
        {{- $all := concat (get $of $list | default list) (get $container $list | default list) -}}
        {{- $_ := set $container $list $all -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- with $.values.settings.METRICS_PORT -}}
    {{- $_ := set $container "ports" (list (dict "name" "metrics" "containerPort" (int .))) -}}
  {{- end -}}
  {{- if eq (toString $.values.kernelLog) "true" -}}
    {{- $granted := $container.securityContext.capabilities -}}
    {{- $_ := set $granted "add" (append $granted.add "SYSLOG") -}}
  {{- end -}}
  {{- if eq (toString $.values.hpcPlugins) "true" -}}
    {{- $mount := dict "name" "oci-hpc" "mountPath" "/host/run/oci-hpc" "readOnly" true -}}
    {{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) -}}
    {{- $volume := dict "name" "oci-hpc" "hostPath" (dict "path" "/run/oci-hpc" "type" "DirectoryOrCreate") -}}
    {{- $_ := set $pod "volumes" (append $pod.volumes $volume) -}}
  {{- end -}}
  {{- range $mounts := $.mounts -}}
    {{- $granted := $mounts.spec.template.spec -}}
    {{- $_ := set $container "volumeMounts" (concat (first $granted.containers).volumeMounts $container.volumeMounts) -}}
    {{- $_ := set $pod "volumes" (concat $granted.volumes $pod.volumes) -}}
  {{- end -}}
  {{- with $.values.resources }}{{ $_ := set $container "resources" . }}{{ end -}}
{{- end -}}
{{- with .values.settings.METRICS_TLS_DIR -}}
  {{- range $container := $pod.containers -}}
    {{- $mount := dict "name" "metrics-tls" "mountPath" $.values.settings.METRICS_TLS_DIR "readOnly" true -}}
    {{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) -}}
  {{- end -}}
  {{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "metrics-tls" "secret" (dict "secretName" $.secret))) -}}
{{- end -}}
{{- with $patch.volumes }}{{ $_ := set $pod "volumes" (concat . $pod.volumes) }}{{ end -}}
{{- with .values.nodeSelector }}{{ $_ := set $pod "nodeSelector" (merge $pod.nodeSelector .) }}{{ end -}}
{{- toYaml $pod -}}
{{- end -}}
