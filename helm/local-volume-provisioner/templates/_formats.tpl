{{/* Formats of texts. The schema could check them, but its error would be a regular expression. */}}
{{- define "local-volume-provisioner.formats" -}}
{{- $cleanup := .Values.nodeCleanup | default dict -}}
{{- $digest := kindIs "map" .Values.image | ternary .Values.image dict -}}
{{- include "local-volume-provisioner.format" (list "image.digest" $digest.digest "digest") -}}
{{- include "local-volume-provisioner.format" (list "kubeletDir" .Values.kubeletDir "path") -}}
{{- include "local-volume-provisioner.format" (list "minResyncPeriod" .Values.minResyncPeriod "duration") -}}
{{- include "local-volume-provisioner.format" (list "prometheusRule.interval" (.Values.prometheusRule | default dict).interval "interval") -}}
{{- include "local-volume-provisioner.format" (list "nodeCleanup.pvcDeletionDelay" $cleanup.pvcDeletionDelay "duration") -}}
{{- include "local-volume-provisioner.format" (list "nodeCleanup.stalePvDiscoveryInterval" $cleanup.stalePvDiscoveryInterval "positive") -}}
{{- range $cleanup.storageClassNames -}}
{{- include "local-volume-provisioner.format" (list "nodeCleanup.storageClassNames" . "class") -}}
{{- end -}}
{{- range $cleanup.csiDrivers -}}
{{- include "local-volume-provisioner.format" (list "nodeCleanup.csiDrivers" . "driver") -}}
{{- end -}}
{{- include "local-volume-provisioner.format" (list "uninstall.timeout" (.Values.uninstall | default dict).timeout "timeout") -}}
{{- range $class := .Values.classes -}}
{{- include "local-volume-provisioner.format" (list "classes: name" .name "class") -}}
{{- range $key, $format := dict "hostDir" "path" "mountDir" "path" "cleanupTimeout" "positive" -}}
{{- include "local-volume-provisioner.format" (list (printf "classes: %s of class %q" $key $class.name) (get $class $key) $format) -}}
{{- end -}}
{{- $devices := .devices | default dict -}}
{{- range $key := list "match" "exclude" -}}
{{- range splitList "," (get $devices $key | default list | join ",") -}}
{{- include "local-volume-provisioner.format" (list (printf "classes: devices.%s of class %q" $key $class.name) (trim .) "link") -}}
{{- end -}}
{{- end -}}
{{- range $key := list "minSize" "maxSize" -}}
{{- include "local-volume-provisioner.format" (list (printf "classes: devices.%s of class %q" $key $class.name) (get $devices $key) "size") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Ends the rendering if a value does not have its format (list: key, value, format). */}}
{{- define "local-volume-provisioner.format" -}}
{{- $duration := "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$" -}}
{{- $formats := dict
  "class" (list "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" "is no name of a StorageClass; use lower-case letters, digits, - and ., with a letter or digit at both ends")
  "digest" (list "^sha256:[0-9a-f]{64}$" "is no digest; write sha256: and 64 hexadecimal digits")
  "driver" (list "^[^,=]+(=[^,]+)?$" "is no CSI driver; write its name, or its name, = and the parts of docs/node-cleanup.md")
  "duration" (list $duration "is no duration; write one such as 90s, 5m or 6h")
  "interval" (list "^([0-9]+(ms|s|m|h|d))+$" "is no duration of Prometheus; write one such as 30s or 2m")
  "link" (list "^/dev/disk/[^/*?\\[\\\\]+/[^/]+$" "matches no link below /dev/disk; write one such as /dev/disk/by-id/nvme-*")
  "path" (list "^/" "is no absolute path; begin it with /")
  "positive" (list $duration "is no duration above 0; write one such as 90s, 5m or 6h")
  "size" (list "^[0-9]+([kMGTPE]|[KMGTPE]i|[eE][0-9]+)?$" "is no size; write one such as 500Gi or 2T")
  "timeout" (list "^([0-9]|[1-9][0-9]|1[01][0-9]|120)s$|^[12]m$" "is no time up to two minutes; write one such as 90s or 2m")
-}}
{{- $name := index . 2 -}}
{{- $format := get $formats $name -}}
{{- $value := index . 1 | default "" -}}
{{- $isZero := and (eq $name "positive") (regexMatch "^([0.]+(ns|us|µs|ms|s|m|h))+$" $value) -}}
{{- if and $value (or $isZero (not (regexMatch (first $format) $value))) -}}
{{- fail (printf "%s: %q %s" (first .) $value (last $format)) -}}
{{- end -}}
{{- end -}}
