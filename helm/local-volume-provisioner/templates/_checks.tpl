{{/* What the schema cannot see. Each ends the rendering with a sentence that says what to do. */}}
{{- define "local-volume-provisioner.checks" -}}
{{- if include "local-volume-provisioner.isTrue" .Values.enableWindows -}}
{{- fail "enableWindows: this provisioner runs on Linux nodes only; set enableWindows to false, and keep the Go provisioner, as a release of its own, for Windows" -}}
{{- end -}}

{{- if .Release.IsUpgrade -}}
{{- range (lookup "apps/v1" "DaemonSet" .Release.Namespace "").items -}}
{{- include "local-volume-provisioner.sameDaemonSet" (list $ .) -}}
{{- end -}}
{{- end -}}

{{- if kindIs "invalid" .Values.classes -}}
{{- fail "classes: null is no list of classes; write classes: [] for none, or remove the key" -}}
{{- end -}}
{{- include "local-volume-provisioner.formats" . -}}
{{- $kubeletDir := include "local-volume-provisioner.kubeletDir" . -}}
{{- $unprivileged := include "local-volume-provisioner.isUnprivileged" . -}}
{{- $hostDirs := dict -}}
{{- $globs := dict -}}
{{- $names := list -}}
{{- range .Values.classes -}}
{{- if has .name $names -}}
{{- fail (printf "classes: two classes are called %q; give each a name of its own, since it is also the name of its StorageClass" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- $mountDir := clean (.mountDir | default .hostDir) -}}
{{- $other := get $hostDirs $mountDir -}}
{{- if and $other (ne $other (clean .hostDir)) -}}
{{- fail (printf "classes: the mountDir %s is given to two hostDirs, %s and %s; give each class its own mountDir" $mountDir $other (clean .hostDir)) -}}
{{- end -}}
{{- $_ := set $hostDirs $mountDir (clean .hostDir) -}}
{{- $hostDir := clean .hostDir -}}
{{- if eq $hostDir "/" -}}
{{- fail (printf "classes: class %q has the hostDir /, the root of the node; set hostDir to a directory that holds nothing but its volumes" .name) -}}
{{- end -}}
{{- if hasPrefix (printf "%s/" $kubeletDir) (printf "%s/" $hostDir) -}}
{{- fail (printf "classes: class %q has the hostDir %s, which is in the kubelet's directory %s; set hostDir to a directory of its own" .name $hostDir $kubeletDir) -}}
{{- end -}}
{{- $name := .name -}}
{{- range splitList "," (.namePattern | default "*") -}}
{{- $glob := trim . -}}
{{- $outside := regexReplaceAll "\\[(\\^[^\\]]+|[^\\]^][^\\]]*)\\]" (regexReplaceAll "\\\\." $glob "x") "" -}}
{{- if regexMatch "[\\[\\\\]" $outside -}}
{{- fail (printf "classes: class %q has the namePattern %q, whose [ is not closed or whose last \\ escapes nothing; close it, as in sd[a-f], or remove it" $name $glob) -}}
{{- end -}}
{{- $entries := printf "%s %s" $hostDir $glob -}}
{{- $other := get $globs $entries -}}
{{- if and $other (ne $other $name) -}}
{{- fail (printf "classes: %q and %q both have the hostDir %s and the namePattern %q; give one of them another hostDir or namePattern" $other $name $hostDir $glob) -}}
{{- end -}}
{{- $_ := set $globs $entries $name -}}
{{- end -}}
{{- if and $unprivileged (eq (.volumeMode | default "") "Block") -}}
{{- fail (printf "privileged: false cannot open the devices of class %q (volumeMode: Block); set privileged to true, or remove the class" .name) -}}
{{- end -}}
{{- if and $unprivileged .fsType -}}
{{- fail (printf "privileged: false cannot open devices, which the fsType %q of class %q is for; set privileged to true, or remove fsType" .fsType .name) -}}
{{- end -}}
{{- if .devices -}}
{{- if ne (.binding | default "") "disk" -}}
{{- fail (printf "classes: class %q has devices without binding: disk, so a claim could get another disk after a reboot; set binding to disk, or remove devices" .name) -}}
{{- end -}}
{{- if $unprivileged -}}
{{- fail (printf "privileged: false cannot open disks, which class %q takes in by its devices; set privileged to true, or remove devices" .name) -}}
{{- end -}}
{{- if include "local-volume-provisioner.lacksDev" $ -}}
{{- fail (printf "mountDevVolume: false hides /dev/disk from devices of class %q; set mountDevVolume to true, or remove devices" .name) -}}
{{- end -}}
{{- if and .devices.filesystem (or .fsType (eq (.volumeMode | default "") "Block")) -}}
{{- fail (printf "classes: class %q has devices.filesystem, which makes mounted volumes; remove volumeMode: Block and fsType, or filesystem" .name) -}}
{{- end -}}
{{- if and .devices.mountOptions (not .devices.filesystem) -}}
{{- fail (printf "classes: class %q has devices.mountOptions without filesystem; set filesystem, or remove mountOptions" .name) -}}
{{- end -}}
{{- end -}}
{{- if and .cleanMethod .blockCleanerCommand -}}
{{- fail (printf "classes: class %q has a cleanMethod and a blockCleanerCommand, which are two answers to one question; keep one of the two" .name) -}}
{{- end -}}
{{- end -}}

{{- if include "local-volume-provisioner.bindsToDisks" . -}}
{{- range .Values.classes -}}
{{- range $key, $dir := dict "hostDir" .hostDir "mountDir" (.mountDir | default .hostDir) -}}
{{- $dir = printf "%s/" (clean $dir) -}}
{{- $links := "/run/local-volume-provisioner/" -}}
{{- if or (hasPrefix $links $dir) (hasPrefix $dir $links) -}}
{{- fail (printf "classes: %s %s overlaps %s, where binding: disk has its links; use another directory" $key $dir $links) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if and (eq (toString .Values.marks) "Node") (not (include "local-volume-provisioner.isUnprivileged" .)) -}}
{{- fail "marks: Node has no effect on a privileged container, which stores marks on the disks; remove marks, or set privileged to false" -}}
{{- end -}}

{{- with ((.Values.updateStrategy | default dict).rollingUpdate | default dict).maxSurge -}}
{{- if not (has (toString .) (list "0" "0%")) -}}
{{- fail (printf "updateStrategy: rollingUpdate.maxSurge %v would run two provisioners on a node at a time; remove maxSurge, and set maxUnavailable instead" .) -}}
{{- end -}}
{{- end -}}

{{- range $key, $tolerations := dict "tolerations" .Values.tolerations "nodeCleanup.tolerations" (.Values.nodeCleanup | default dict).tolerations -}}
{{- range $tolerations -}}
{{- if not (has (.operator | default "Equal") (list "Equal" "Exists")) -}}
{{- fail (printf "%s: the operator %q of key %q is unknown; set operator to Exists or Equal" $key .operator (.key | default "")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if and (include "local-volume-provisioner.isTrue" (.Values.serviceMonitor | default dict).enabled) (include "local-volume-provisioner.isTrue" (.Values.podMonitor | default dict).enabled) -}}
{{- fail "podMonitor: enabled beside serviceMonitor, so Prometheus would read each metric twice; set one of the two enabled keys to false" -}}
{{- end -}}

{{- $runbookUrl := (.Values.prometheusRule | default dict).runbookUrl | default "" -}}
{{- if and $runbookUrl (not (regexMatch "^https?://[^/]" $runbookUrl)) -}}
{{- fail (printf "prometheusRule: runbookUrl %q is no address that Alertmanager could link to; set an absolute one (https://...), or leave it empty" $runbookUrl) -}}
{{- end -}}

{{- if and (include "local-volume-provisioner.isTrue" (.Values.nodeCleanup | default dict).enabled) (not (include "local-volume-provisioner.nodeCleanupClasses" .)) -}}
{{- fail "nodeCleanup: there is no class whose volumes could go with their nodes; set nodeCleanup.storageClassNames or classes, or nodeCleanup.enabled to false" -}}
{{- end -}}

{{- if include "local-volume-provisioner.isTrue" (.Values.nodeIsolation | default dict).enabled -}}
{{- range .Values.classes -}}
{{- if .selector -}}
{{- fail (printf "nodeIsolation: class %q has a selector, so its volumes are not tied to one node by name, and the policy cannot determine their node; remove the selector, or set nodeIsolation.enabled to false" .name) -}}
{{- end -}}
{{- if eq (.binding | default "") "disk" -}}
{{- fail (printf "nodeIsolation: class %q has binding: disk, whose PersistentVolumes the policy refuses; remove binding, or set nodeIsolation.enabled to false" .name) -}}
{{- end -}}
{{- end -}}
{{- $cleanup := .Values.nodeCleanup | default dict -}}
{{- if and (include "local-volume-provisioner.isTrue" $cleanup.enabled) (eq ($cleanup.serviceAccountName | default "") (include "local-volume-provisioner.serviceAccountName" .)) -}}
{{- fail "nodeIsolation: nodeCleanup.serviceAccountName is the provisioner's, which the policies restrict to its own node's volumes; give the node cleanup an account of its own, or set nodeIsolation.enabled to false" -}}
{{- end -}}
{{- if .Values.kubeConfigEnv -}}
{{- fail "nodeIsolation: with kubeConfigEnv the provisioner does not use its ServiceAccount, which the policy requires; remove kubeConfigEnv, or set nodeIsolation.enabled to false" -}}
{{- end -}}
{{- if semverCompare "< 1.30.0-0" .Capabilities.KubeVersion.Version -}}
{{- fail (printf "nodeIsolation: Kubernetes %s does not say which node a token belongs to; it requires 1.30 or newer; set nodeIsolation.enabled to false" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Refuses to upgrade a release under another name (list: context, a DaemonSet). A DaemonSet's selector cannot be changed, and
under another name the new pods would run beside the old ones for a moment, which know nothing of each other. A provisioner
is known by where it has its configuration: a release may have other DaemonSets, too.
*/}}
{{- define "local-volume-provisioner.sameDaemonSet" -}}
{{- $context := index . 0 -}}
{{- $daemonSet := index . 1 -}}
{{- $pod := $daemonSet.spec.template.spec -}}
{{- $paths := list -}}
{{- range $pod.containers -}}{{- range .volumeMounts -}}{{- $paths = append $paths (clean .mountPath) -}}{{- end -}}{{- end -}}
{{- $labels := $daemonSet.spec.selector.matchLabels -}}
{{- $ofRelease := eq (get $labels "app.kubernetes.io/instance") $context.Release.Name -}}
{{- $onLinux := ne (get ($pod.nodeSelector | default dict) "kubernetes.io/os") "windows" -}}
{{- if and $ofRelease $onLinux (has "/etc/provisioner/config" $paths) -}}
{{- $now := $daemonSet.metadata.name -}}
{{- $then := include "local-volume-provisioner.fullname" $context -}}
{{- $sameLabels := deepEqual $labels (include "local-volume-provisioner.selector" $context | fromYaml) -}}
{{- if not (and (eq $now $then) $sameLabels) -}}
{{- $name := get $labels "app.kubernetes.io/name" -}}
{{- $remedy := printf "set nameOverride to %s" $name -}}
{{- if ne $now (contains $name $context.Release.Name | ternary $context.Release.Name (printf "%s-%s" $context.Release.Name $name) | trunc 63 | trimSuffix "-") -}}
{{- $remedy = printf "%s, and fullnameOverride to %s" $remedy $now -}}
{{- else if $context.Values.fullnameOverride -}}
{{- $remedy = printf "%s, and remove fullnameOverride" $remedy -}}
{{- end -}}
{{- if ne (len $labels) 2 -}}
{{- $remedy = "install a new release instead, after this one is uninstalled: the DaemonSet selects by labels that this chart does not have" -}}
{{- end -}}
{{- fail (printf "this release runs the provisioner as DaemonSet %s, and these values call it %s, labelled %s; to replace it in place, %s (docs/upgrade.md)" $now $then (include "local-volume-provisioner.name" $context) $remedy) -}}
{{- end -}}
{{- end -}}
{{- end -}}
