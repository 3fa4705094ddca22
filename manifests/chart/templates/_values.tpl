{{- /*
"oke.values": the values as JSON, with `configurations` and the monitoring's port applied.
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
