"""Makes the calls that it reads, one line of JSON each, with Oracle's SDK, and writes what came of each as a line.

usage: driver.py LOGIN, where LOGIN is JSON: how to log in, and the endpoint. No call is repeated."""

import json
import sys

import oci

settings = json.loads(sys.argv[1])


class ServiceAccount:
    """Hands the SDK a token that is not at the place where pods have it."""

    def get_sa_token(self):
        return settings["token"]


def log_in():
    if settings["login"] == "config":
        return oci.config.from_file(settings["config"]), {}
    if settings["login"] == "instance":
        signers = oci.auth.signers
        return {}, {"signer": signers.InstancePrincipalsSecurityTokenSigner(federation_endpoint=settings["federation"])}
    signer = oci.auth.signers.OkeWorkloadIdentityResourcePrincipalSigner(
        ServiceAccount(), settings["authority"], settings["host"], settings["port"], "us-ashburn-1"
    )
    return {}, {"signer": signer}


config, options = log_in()
options.update(service_endpoint=settings["endpoint"], retry_strategy=oci.retry.NoneRetryStrategy())
compute = oci.core.ComputeClient(config, **options)
network = oci.core.VirtualNetworkClient(config, **options)
plugins = oci.compute_instance_agent.PluginClient(config, **options)
# The clients append the version of the API to endpoints that they know, and take others as they are.
for client in (compute, network):
    client.base_client.endpoint = settings["endpoint"] + "/20160918"
plugins.base_client.endpoint = settings["endpoint"] + "/20180530"


def model(name, fields):
    """An object of the SDK's from the API's own field names."""
    kind = getattr(oci.core.models, name)
    empty = kind()
    made = {}
    for attribute, field in empty.attribute_map.items():
        if field in fields:
            value, wanted = fields[field], empty.swagger_types[attribute]
            if isinstance(value, dict) and hasattr(oci.core.models, wanted):
                value = model(wanted, value)
            if isinstance(value, list) and wanted.startswith("list["):
                value = [model(wanted[5:-1], one) if isinstance(one, dict) else one for one in value]
            made[attribute] = value
    unknown = set(fields) - set(empty.attribute_map.values())
    if unknown:
        raise ValueError(f"{name} has no {unknown}")
    return kind(**made)


def call(operation, given):
    ipv6 = given.get("family") == "IPv6"
    token = {"opc_retry_token": given["retryToken"]} if "retryToken" in given else {}
    if_match = {"if_match": given["ifMatch"]} if "ifMatch" in given else {}
    every = oci.pagination.list_call_get_all_results
    if operation == "listVnicAttachments":
        return every(compute.list_vnic_attachments, given["compartmentId"], instance_id=given["instanceId"])
    if operation == "getVnicAttachment":
        return compute.get_vnic_attachment(given["id"])
    if operation == "attachVnic":
        return compute.attach_vnic(model("AttachVnicDetails", given["body"]), **token)
    if operation == "detachVnic":
        return compute.detach_vnic(given["id"], **if_match)
    if operation == "getVnic":
        return network.get_vnic(given["id"])
    if operation == "updateVnic":
        return network.update_vnic(given["id"], model("UpdateVnicDetails", given["body"]), **if_match)
    if operation == "listAddresses":
        return every(network.list_ipv6s if ipv6 else network.list_private_ips, vnic_id=given["vnicId"])
    if operation == "createAddress":
        if ipv6:
            return network.create_ipv6(model("CreateIpv6Details", given["body"]), **token)
        return network.create_private_ip(model("CreatePrivateIpDetails", given["body"]), **token)
    if operation == "deleteAddress":
        return network.delete_ipv6(given["id"]) if ipv6 else network.delete_private_ip(given["id"])
    if operation == "bulkCreateAddresses":
        if ipv6:
            body = {"vnicId": given["vnicId"], "bulkCreateIpv6sItem": given["items"]}
            return network.bulk_create_ipv6s(model("BulkCreateIpv6sDetails", body), **token)
        body = {"vnicId": given["vnicId"], "bulkCreatePrivateIpItem": given["items"]}
        return network.bulk_create_private_ips(model("BulkCreatePrivateIpsDetails", body), **token)
    if operation == "getSubnet":
        return network.get_subnet(given["id"])
    if operation == "getInstance":
        return compute.get_instance(given["id"])
    if operation == "instanceAction":
        return compute.instance_action(given["id"], given["action"], **token)
    if operation == "listAgentPlugins":
        return every(plugins.list_instance_agent_plugins, given["compartmentId"], given["instanceId"])
    if operation == "listComputeHosts":
        return every(compute.list_compute_hosts, given["compartmentId"])
    if operation == "listMaintenanceEvents":
        return every(compute.list_instance_maintenance_events, given["compartmentId"])
    if operation == "listShapes":
        return every(compute.list_shapes, given["compartmentId"])
    raise ValueError(f"no operation {operation}")


for line in sys.stdin:
    request = json.loads(line)
    try:
        response = call(request["operation"], request["arguments"])
        work = response.headers.get("opc-work-request-id")
        value = compute.base_client.sanitize_for_serialization(response.data) if work is None else work
        answer = {"value": value, "etag": response.headers.get("etag")}
    except oci.exceptions.ServiceError as error:
        answer = {"status": error.status, "code": error.code or "", "requestId": error.request_id}
    print(json.dumps(answer), flush=True)
