// SPDX-License-Identifier: Apache-2.0
// Reads a configuration of Firecracker's from standard input into the types of its SDK, and says what they refuse.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/firecracker-microvm/firecracker-go-sdk/client/models"
	"github.com/go-openapi/strfmt"
)

type configuration struct {
	BootSource        *models.BootSource           `json:"boot-source"`
	MachineConfig     *models.MachineConfiguration `json:"machine-config"`
	Drives            []*models.Drive              `json:"drives"`
	NetworkInterfaces []*models.NetworkInterface   `json:"network-interfaces"`
}

func main() {
	var found configuration
	reader := json.NewDecoder(os.Stdin)
	reader.DisallowUnknownFields()
	if err := reader.Decode(&found); err != nil {
		log.Fatal(err)
	}
	parts := []interface{ Validate(strfmt.Registry) error }{found.BootSource, found.MachineConfig}
	for _, one := range found.Drives {
		parts = append(parts, one)
	}
	for _, one := range found.NetworkInterfaces {
		parts = append(parts, one)
	}
	for _, one := range parts {
		if err := one.Validate(strfmt.Default); err != nil {
			log.Fatal(err)
		}
	}
}
