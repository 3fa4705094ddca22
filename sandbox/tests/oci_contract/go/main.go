// Runs the calls that it reads, one line of JSON each, with Oracle's SDK for Go, and writes the result of each as a line.
// The protocol is that of driver.py.
//
// usage: driver LOGIN, where LOGIN is JSON: the login and the endpoint. The driver retries no call.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/common/auth"
	"github.com/oracle/oci-go-sdk/v65/computeinstanceagent"
	"github.com/oracle/oci-go-sdk/v65/core"
)

type settings struct {
	Login     string
	Endpoint  string
	Config    string
	Token     string
	Authority string
	Host      string
}

type arguments struct {
	ID            *string
	CompartmentID *string
	InstanceID    *string
	VnicID        *string
	Family        string
	RetryToken    *string
	IfMatch       *string
	Action        string
	Body          json.RawMessage
	Items         json.RawMessage
}

type answer struct {
	Value     any     `json:"value,omitempty"`
	Etag      *string `json:"etag,omitempty"`
	Status    int     `json:"status,omitempty"`
	Code      string  `json:"code,omitempty"`
	RequestID string  `json:"requestId,omitempty"`
}

// account supplies a service account's token that is not in the place where pods have it.
type account string

func (token account) ServiceAccountToken() (string, error) { return string(token), nil }

type driver struct {
	compute core.ComputeClient
	network core.VirtualNetworkClient
	plugins computeinstanceagent.PluginClient
}

func main() {
	log.SetFlags(0)
	driver, err := newDriver(os.Args[1])
	if err != nil {
		log.Fatal("log in: ", err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var request struct {
			Operation string
			Arguments arguments
		}
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			log.Fatal("read a call: ", err)
		}
		value, etag, err := driver.call(context.Background(), request.Operation, request.Arguments)
		result := answer{Value: value, Etag: etag}
		if err != nil {
			refusal, ok := common.IsServiceError(err)
			if !ok {
				log.Fatal(request.Operation, ": ", err)
			}
			result = answer{Status: refusal.GetHTTPStatusCode(), Code: refusal.GetCode(), RequestID: refusal.GetOpcRequestID()}
		}
		if err := output.Encode(result); err != nil {
			log.Fatal("write an answer: ", err)
		}
	}
}

func newDriver(login string) (*driver, error) {
	var given settings
	if err := json.Unmarshal([]byte(login), &given); err != nil {
		return nil, err
	}
	provider, err := logIn(given)
	if err != nil {
		return nil, err
	}
	compute, err := core.NewComputeClientWithConfigurationProvider(provider)
	if err != nil {
		return nil, err
	}
	network, err := core.NewVirtualNetworkClientWithConfigurationProvider(provider)
	if err != nil {
		return nil, err
	}
	plugins, err := computeinstanceagent.NewPluginClientWithConfigurationProvider(provider)
	if err != nil {
		return nil, err
	}
	never := common.NoRetryPolicy()
	for _, client := range []*common.BaseClient{&compute.BaseClient, &network.BaseClient, &plugins.BaseClient} {
		client.Host = given.Endpoint
		client.SetCustomClientConfiguration(common.CustomClientConfiguration{RetryPolicy: &never})
	}
	return &driver{compute, network, plugins}, nil
}

func logIn(given settings) (common.ConfigurationProvider, error) {
	switch given.Login {
	case "config":
		return common.ConfigurationProviderFromFile(given.Config, "")
	case "instance":
		// The SDK reads the metadata service's URL from OCI_METADATA_BASE_URL.
		os.Setenv("OCI_SDK_AUTH_CLIENT_REGION_URL", given.Endpoint)
		return auth.InstancePrincipalConfigurationProvider()
	case "workload":
		for name, value := range map[string]string{
			auth.ResourcePrincipalVersionEnvVar:      auth.ResourcePrincipalVersion2_2,
			auth.ResourcePrincipalRegionEnvVar:       "us-ashburn-1",
			auth.KubernetesServiceHostEnvVar:         given.Host,
			auth.OciKubernetesServiceAccountCertPath: given.Authority,
		} {
			os.Setenv(name, value)
		}
		return auth.OkeWorkloadIdentityConfigurationProviderWithServiceAccountTokenProvider(account(given.Token))
	}
	return nil, fmt.Errorf("no login %q", given.Login)
}

// call makes one call. It returns the object, the list or the work request, and the object's version.
func (d *driver) call(ctx context.Context, operation string, given arguments) (any, *string, error) {
	ipv6 := given.Family == "IPv6"
	switch operation {
	case "listVnicAttachments":
		return pages(func(page *string) ([]core.VnicAttachment, *string, error) {
			request := core.ListVnicAttachmentsRequest{CompartmentId: given.CompartmentID, InstanceId: given.InstanceID, Page: page}
			response, err := d.compute.ListVnicAttachments(ctx, request)
			return response.Items, response.OpcNextPage, err
		})
	case "getVnicAttachment":
		response, err := d.compute.GetVnicAttachment(ctx, core.GetVnicAttachmentRequest{VnicAttachmentId: given.ID})
		return response.VnicAttachment, response.Etag, err
	case "attachVnic":
		request := core.AttachVnicRequest{OpcRetryToken: given.RetryToken}
		read(given.Body, &request.AttachVnicDetails)
		response, err := d.compute.AttachVnic(ctx, request)
		return response.VnicAttachment, response.Etag, err
	case "detachVnic":
		request := core.DetachVnicRequest{VnicAttachmentId: given.ID, IfMatch: given.IfMatch}
		_, err := d.compute.DetachVnic(ctx, request)
		return nil, nil, err
	case "getVnic":
		response, err := d.network.GetVnic(ctx, core.GetVnicRequest{VnicId: given.ID})
		return response.Vnic, response.Etag, err
	case "updateVnic":
		request := core.UpdateVnicRequest{VnicId: given.ID, IfMatch: given.IfMatch}
		read(given.Body, &request.UpdateVnicDetails)
		response, err := d.network.UpdateVnic(ctx, request)
		return response.Vnic, response.Etag, err
	case "getSubnet":
		response, err := d.network.GetSubnet(ctx, core.GetSubnetRequest{SubnetId: given.ID})
		return response.Subnet, response.Etag, err
	case "getInstance":
		response, err := d.compute.GetInstance(ctx, core.GetInstanceRequest{InstanceId: given.ID})
		return response.Instance, response.Etag, err
	case "instanceAction":
		action := core.InstanceActionActionEnum(given.Action)
		request := core.InstanceActionRequest{InstanceId: given.ID, Action: action, OpcRetryToken: given.RetryToken}
		response, err := d.compute.InstanceAction(ctx, request)
		return response.Instance, response.Etag, err
	case "listAgentPlugins":
		return pages(func(page *string) ([]computeinstanceagent.InstanceAgentPluginSummary, *string, error) {
			request := computeinstanceagent.ListInstanceAgentPluginsRequest{CompartmentId: given.CompartmentID, InstanceagentId: given.InstanceID, Page: page}
			response, err := d.plugins.ListInstanceAgentPlugins(ctx, request)
			return response.Items, response.OpcNextPage, err
		})
	case "listComputeHosts":
		return pages(func(page *string) ([]core.ComputeHostSummary, *string, error) {
			response, err := d.compute.ListComputeHosts(ctx, core.ListComputeHostsRequest{CompartmentId: given.CompartmentID, Page: page})
			return response.Items, response.OpcNextPage, err
		})
	case "listMaintenanceEvents":
		return pages(func(page *string) ([]core.InstanceMaintenanceEventSummary, *string, error) {
			response, err := d.compute.ListInstanceMaintenanceEvents(ctx, core.ListInstanceMaintenanceEventsRequest{CompartmentId: given.CompartmentID, Page: page})
			return response.Items, response.OpcNextPage, err
		})
	case "listShapes":
		return pages(func(page *string) ([]core.Shape, *string, error) {
			response, err := d.compute.ListShapes(ctx, core.ListShapesRequest{CompartmentId: given.CompartmentID, Page: page})
			return response.Items, response.OpcNextPage, err
		})
	}
	if ipv6 {
		return d.callIpv6(ctx, operation, given)
	}
	return d.callIpv4(ctx, operation, given)
}

func (d *driver) callIpv4(ctx context.Context, operation string, given arguments) (any, *string, error) {
	switch operation {
	case "listAddresses":
		return pages(func(page *string) ([]core.PrivateIp, *string, error) {
			response, err := d.network.ListPrivateIps(ctx, core.ListPrivateIpsRequest{VnicId: given.VnicID, Page: page})
			return response.Items, response.OpcNextPage, err
		})
	case "createAddress":
		request := core.CreatePrivateIpRequest{OpcRetryToken: given.RetryToken}
		read(given.Body, &request.CreatePrivateIpDetails)
		response, err := d.network.CreatePrivateIp(ctx, request)
		return response.PrivateIp, response.Etag, err
	case "deleteAddress":
		_, err := d.network.DeletePrivateIp(ctx, core.DeletePrivateIpRequest{PrivateIpId: given.ID})
		return nil, nil, err
	case "bulkCreateAddresses":
		request := core.BulkCreatePrivateIpsRequest{OpcRetryToken: given.RetryToken}
		request.VnicId = given.VnicID
		read(given.Items, &request.BulkCreatePrivateIpItem)
		response, err := d.network.BulkCreatePrivateIps(ctx, request)
		return response.OpcWorkRequestId, nil, err
	}
	return nil, nil, fmt.Errorf("no operation %q", operation)
}

func (d *driver) callIpv6(ctx context.Context, operation string, given arguments) (any, *string, error) {
	switch operation {
	case "listAddresses":
		return pages(func(page *string) ([]core.Ipv6, *string, error) {
			response, err := d.network.ListIpv6s(ctx, core.ListIpv6sRequest{VnicId: given.VnicID, Page: page})
			return response.Items, response.OpcNextPage, err
		})
	case "createAddress":
		request := core.CreateIpv6Request{OpcRetryToken: given.RetryToken}
		read(given.Body, &request.CreateIpv6Details)
		response, err := d.network.CreateIpv6(ctx, request)
		return response.Ipv6, response.Etag, err
	case "deleteAddress":
		_, err := d.network.DeleteIpv6(ctx, core.DeleteIpv6Request{Ipv6Id: given.ID})
		return nil, nil, err
	case "bulkCreateAddresses":
		request := core.BulkCreateIpv6sRequest{OpcRetryToken: given.RetryToken}
		request.VnicId = given.VnicID
		read(given.Items, &request.BulkCreateIpv6sItem)
		response, err := d.network.BulkCreateIpv6s(ctx, request)
		return response.OpcWorkRequestId, nil, err
	}
	return nil, nil, fmt.Errorf("no operation %q", operation)
}

// pages reads a list to its last page.
func pages[T any](next func(page *string) ([]T, *string, error)) (any, *string, error) {
	all := []T{}
	for page := (*string)(nil); ; {
		items, following, err := next(page)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, items...)
		if page = following; page == nil {
			return all, nil, nil
		}
	}
}

// read fills one of the SDK's objects from the API's own field names.
func read(given json.RawMessage, into any) {
	decoder := json.NewDecoder(bytes.NewReader(given))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		log.Fatal("read a body: ", err)
	}
}
