/* The sizes and offsets that binaries compiled elsewhere rely on. */
#include "relaybuild/model.h"

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)

AT(DLTensor, data, 0);
AT(DLTensor, device, 8);
AT(DLTensor, ndim, 16);
AT(DLTensor, dtype, 20);
AT(DLTensor, shape, 24);
AT(DLTensor, strides, 32);
AT(DLTensor, byte_offset, 40);
_Static_assert(sizeof(DLTensor) == 48, "DLTensor");
AT(DLManagedTensor, manager_ctx, 48);
AT(DLManagedTensor, deleter, 56);
AT(DLManagedTensorVersioned, manager_ctx, 8);
AT(DLManagedTensorVersioned, deleter, 16);
AT(DLManagedTensorVersioned, flags, 24);
AT(DLManagedTensorVersioned, dl_tensor, 32);

AT(RbTensorInfo, shape, 16);
AT(RbTensorInfo, dtype, 24);
AT(RbModelInfo, inputs, 40);
AT(RbModelInfo, metadata, 80);
AT(RbModelApi, struct_size, 4);
AT(RbModelApi, describe, 8);
AT(RbModelApi, create, 16);
AT(RbModelApi, run, 24);
AT(RbModelApi, destroy, 32);
AT(RbModelApi, last_error, 40);
AT(RbModelApi, num_threads, 48);
AT(RbModelApi, create_with, 56);
AT(RbThreadPool, threads, 8);
AT(RbThreadPool, run, 16);
AT(RbCreateOptions, threads, 4);
AT(RbCreateOptions, pool, 8);
_Static_assert(RELAYBUILD_ABI_VERSION == 1, "version");
_Static_assert(RB_OK == 0 && RB_ERROR_INVALID_ARGUMENT == 1 && RB_ERROR_INVALID_TENSOR == 2, "status");
_Static_assert(RB_ERROR_OUT_OF_MEMORY == 3 && RB_ERROR_BUSY == 4 && RB_ERROR_UNSUPPORTED_CPU == 5, "status");
_Static_assert(RB_ERROR_THREAD == 6 && RB_ERROR_INTERNAL == 7, "status");
