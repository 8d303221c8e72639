/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/backends/cuda/arm/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CONTROL_NODE "/dev/nvidiactl"

/* Why the driver finds nothing: what its first device node answers. */
static enum mc_gpu_state explain(const char *driver_says, char *detail, size_t n_detail)
{
	int fd = open(CONTROL_NODE, O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		return MC_GPU_STATE_OK;
	}
	if (errno == EACCES || errno == EPERM) {
		snprintf(detail, n_detail,
			"device access denied by sandbox: open %s: %s; allow it (systemd: "
			"DeviceAllow=char-nvidia* rw and PrivateDevices=no; containers: run with "
			"the GPUs) "
			"[%s]",
			CONTROL_NODE, strerror(errno), driver_says);
		return MC_GPU_STATE_DENIED;
	}
	if (errno == ENOENT || errno == ENXIO || errno == ENODEV) {
		snprintf(detail, n_detail,
			"the NVIDIA driver's library is here but no device node: open %s: %s; load "
			"the kernel "
			"module and make the nodes (nvidia-modprobe -c 0 -u) [%s]",
			CONTROL_NODE, strerror(errno), driver_says);
		return MC_GPU_STATE_NO_NODES;
	}
	snprintf(detail, n_detail, "open %s: %s [%s]", CONTROL_NODE, strerror(errno), driver_says);
	return MC_GPU_STATE_ERROR;
}

enum mc_gpu_state mc_gpu_open(struct mc_cu *ret_cu, char *detail, size_t n_detail)
{
	struct mc_cu cu;
	char says[256];
	mc_cu_result r;
	int count = 0;
	enum mc_gpu_state state;

	r = mc_driver_open(&cu, detail, n_detail);
	if (r == MC_DRIVER_E_LIBRARY)
		return MC_GPU_STATE_NO_DRIVER;
	if (r != 0)
		return MC_GPU_STATE_ERROR;
	r = cu.init(0);
	if (r == MC_CU_SUCCESS) {
		r = cu.device_count(&count);
		mc_driver_describe(&cu, "cuDeviceGetCount", r, says, sizeof(says));
	} else {
		mc_driver_describe(&cu, "cuInit", r, says, sizeof(says));
	}
	if (r == MC_CU_SUCCESS && count > 0) {
		*ret_cu = cu;
		return MC_GPU_STATE_OK;
	}
	if (r == MC_CU_SUCCESS)
		snprintf(says, sizeof(says), "cuDeviceGetCount: 0 devices");
	state = explain(says, detail, n_detail);
	if (state != MC_GPU_STATE_OK)
		return state;
	if (r == MC_CU_NO_DEVICE || r == MC_CU_SUCCESS) {
		snprintf(detail, n_detail, "the NVIDIA driver runs but shows no GPU: %s", says);
		return MC_GPU_STATE_NO_GPU;
	}
	snprintf(detail, n_detail, "the NVIDIA driver does not start: %s", says);
	return MC_GPU_STATE_ERROR;
}

int mc_gpu_is_mig(const struct mc_cu *cu, mc_cu_device device)
{
	char name[256] = "";

	return cu->device_name(name, sizeof(name), device) == MC_CU_SUCCESS &&
	       strstr(name, " MIG ") != NULL;
}

static mc_cu_result list_one(
	const struct mc_cu *cu, int ordinal, struct mc_arm_gpu *gpu, const char **ret_call)
{
	mc_cu_device device;
	struct mc_cu_uuid uuid;
	size_t n_bytes = 0;
	int major = 0, minor = 0, vmm = 0, posix_fd = 0;
	mc_cu_result r;
	char name[256] = "";

	*ret_call = "cuDeviceGet";
	r = cu->device_get(&device, ordinal);
	if (r)
		return r;
	*ret_call = "cuDeviceGetUuid_v2";
	r = cu->device_uuid(&uuid, device);
	if (r)
		return r;
	*ret_call = "cuDeviceGetName";
	r = cu->device_name(name, sizeof(name), device);
	if (r)
		return r;
	name[sizeof(name) - 1] = 0;
	*ret_call = "cuDeviceTotalMem_v2";
	r = cu->device_memory(&n_bytes, device);
	if (r)
		return r;
	*ret_call = "cuDeviceGetAttribute";
	if ((r = cu->device_attribute(&major, MC_CU_ATTR_COMPUTE_MAJOR, device)) ||
		(r = cu->device_attribute(&minor, MC_CU_ATTR_COMPUTE_MINOR, device)) ||
		(r = cu->device_attribute(&vmm, MC_CU_ATTR_VMM, device)) ||
		(r = cu->device_attribute(&posix_fd, MC_CU_ATTR_POSIX_FD, device)))
		return r;
	gpu->is_mig = strstr(name, " MIG ") != NULL;
	mc_gpu_uuid_text(&uuid, (int)gpu->is_mig, gpu->uuid);
	snprintf(gpu->name, sizeof(gpu->name), "%.*s", (int)sizeof(gpu->name) - 1, name);
	gpu->memory_bytes = n_bytes;
	gpu->compute_major = (uint32_t)major;
	gpu->compute_minor = (uint32_t)minor;
	gpu->can_arm = vmm && posix_fd;
	return MC_CU_SUCCESS;
}

void mc_gpu_probe(struct mc_arm_wire_probe *ret_probe)
{
	struct mc_cu cu;
	int count = 0, version = 0;

	memset(ret_probe, 0, sizeof(*ret_probe));
	ret_probe->magic = MC_ARM_MAGIC;
	ret_probe->version = MC_ARM_VERSION;
	ret_probe->size = sizeof(*ret_probe);
	ret_probe->state = mc_gpu_open(&cu, ret_probe->detail, sizeof(ret_probe->detail));
	if (ret_probe->state != MC_GPU_STATE_OK)
		return;
	if (cu.driver_version(&version) == MC_CU_SUCCESS && version > 0)
		ret_probe->driver_version = (uint32_t)version;
	if (cu.device_count(&count) != MC_CU_SUCCESS)
		count = 0;
	for (int i = 0; i < count && ret_probe->n_gpus < MC_ARM_MAX_GPUS; i++) {
		const char *call;
		mc_cu_result r = list_one(&cu, i, &ret_probe->gpu[ret_probe->n_gpus], &call);

		if (r == MC_CU_SUCCESS) {
			ret_probe->n_gpus++;
		} else {
			/* one GPU that fell off the bus must not hide the others */
			memset(&ret_probe->gpu[ret_probe->n_gpus], 0, sizeof(ret_probe->gpu[0]));
			mc_driver_describe(
				&cu, call, r, ret_probe->detail, sizeof(ret_probe->detail));
		}
	}
	if (ret_probe->n_gpus == 0)
		ret_probe->state = MC_GPU_STATE_ERROR;
}

void mc_gpu_uuid_text(const struct mc_cu_uuid *uuid, int is_mig, char ret_text[MC_ARM_UUID_BYTES])
{
	const unsigned char *b = uuid->bytes;

	snprintf(ret_text, MC_ARM_UUID_BYTES,
		"%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		is_mig ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9],
		b[10], b[11], b[12], b[13], b[14], b[15]);
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int mc_gpu_uuid_parse(const char *text, struct mc_cu_uuid *ret_uuid)
{
	struct mc_cu_uuid uuid;
	size_t n = 0;

	if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
		text += 4;
	while (*text && n < 16) {
		int high, low;

		if (*text == '-') {
			text++;
			continue;
		}
		high = hex(text[0]);
		low = high < 0 ? -1 : hex(text[1]);
		if (low < 0)
			return -EINVAL;
		uuid.bytes[n++] = (unsigned char)(high << 4 | low);
		text += 2;
	}
	if (n != 16 || *text)
		return -EINVAL;
	*ret_uuid = uuid;
	return 0;
}
