// SPDX-License-Identifier: Apache-2.0

// Reads objects of Kubernetes and KubeVirt, one JSON document a line, into the projects' own types. An unknown field
// is an error. Prints each object as the types write it again.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	core "k8s.io/api/core/v1"
	node "k8s.io/api/node/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

var kinds = map[string]func() any{
	"VirtualMachineInstance": func() any { return &kubevirt.VirtualMachineInstance{} },
	"VirtualMachine":         func() any { return &kubevirt.VirtualMachine{} },
	"Service":                func() any { return &core.Service{} },
	"Pod":                    func() any { return &core.Pod{} },
	"RuntimeClass":           func() any { return &node.RuntimeClass{} },
}

func read(line []byte) ([]byte, error) {
	var head struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, err
	}
	made, known := kinds[head.Kind]
	if !known {
		return nil, fmt.Errorf("unknown kind %q", head.Kind)
	}
	object := made()
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(object); err != nil {
		return nil, fmt.Errorf("%s: %w", head.Kind, err)
	}
	return json.Marshal(object)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		out, err := read(lines.Bytes())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(string(out))
	}
}
