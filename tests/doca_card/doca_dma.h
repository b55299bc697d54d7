// Part of the software card (software_card.h): only the functions of this interface that doca_link uses.
#pragma once

#include <doca_error.h>
#include <doca_types.h>
#include <cstdint>

extern "C" {
struct doca_buf;
struct doca_ctx;
struct doca_dev;
struct doca_devinfo;
struct doca_dma;
struct doca_dma_task_memcpy;
struct doca_task;
using doca_dma_task_memcpy_completion_cb_t = void (*)(doca_dma_task_memcpy* task, doca_data task_data,
                                                      doca_data context_data);
doca_error_t doca_dma_create(doca_dev* dev, doca_dma** dma);
doca_error_t doca_dma_destroy(doca_dma* dma);
doca_ctx* doca_dma_as_ctx(doca_dma* dma);
doca_error_t doca_dma_cap_task_memcpy_is_supported(const doca_devinfo* info);
doca_error_t doca_dma_cap_get_max_num_tasks(doca_dma* dma, std::uint32_t* count);
doca_error_t doca_dma_cap_task_memcpy_get_max_buf_size(const doca_devinfo* info, std::uint64_t* length);
doca_error_t doca_dma_task_memcpy_set_conf(doca_dma* dma, doca_dma_task_memcpy_completion_cb_t moved,
                                           doca_dma_task_memcpy_completion_cb_t failed, std::uint32_t count);
doca_error_t doca_dma_task_memcpy_alloc_init(doca_dma* dma, const doca_buf* source, doca_buf* target, doca_data data,
                                             doca_dma_task_memcpy** task);
doca_task* doca_dma_task_memcpy_as_task(doca_dma_task_memcpy* task);
}
