// DOCA's libraries (2.5 and newer), loaded on demand, and one owner for each of their objects.
//
// Offpath's binaries are not linked with these libraries: a program that uses another kind of address loads none.
#pragma once

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_types.h>

#include <memory>
#include <string_view>

#include "base/status.h"

namespace offpath::link {

// clang-format off: a list
#define OFFPATH_DOCA_COMMON_CALLS(X) \
  X(doca_error_get_descr) \
  X(doca_devinfo_create_list) X(doca_devinfo_destroy_list) X(doca_devinfo_get_pci_addr_str) \
  X(doca_devinfo_is_equal_pci_addr) \
  X(doca_dev_open) X(doca_dev_close) X(doca_dev_as_devinfo) \
  X(doca_mmap_create) X(doca_mmap_destroy) X(doca_mmap_start) X(doca_mmap_add_dev) X(doca_mmap_set_memrange) \
  X(doca_mmap_get_memrange) X(doca_mmap_set_permissions) X(doca_mmap_export_pci) X(doca_mmap_create_from_export) \
  X(doca_mmap_cap_is_export_pci_supported) X(doca_mmap_cap_is_create_from_export_pci_supported) \
  X(doca_buf_inventory_create) X(doca_buf_inventory_destroy) X(doca_buf_inventory_start) \
  X(doca_buf_inventory_buf_get_by_args) X(doca_buf_dec_refcount) \
  X(doca_pe_create) X(doca_pe_destroy) X(doca_pe_connect_ctx) X(doca_pe_progress) X(doca_pe_get_notification_handle) \
  X(doca_pe_clear_notification) X(doca_pe_request_notification) \
  X(doca_task_submit) X(doca_task_free) X(doca_task_get_status) \
  X(doca_ctx_start) X(doca_ctx_stop) X(doca_ctx_get_state) X(doca_ctx_set_state_changed_cb) X(doca_ctx_set_user_data)
// clang-format on
// clang-format off: a list
#define OFFPATH_DOCA_DMA_CALLS(X) \
  X(doca_dma_create) X(doca_dma_destroy) X(doca_dma_as_ctx) X(doca_dma_cap_task_memcpy_is_supported) \
  X(doca_dma_cap_get_max_num_tasks) X(doca_dma_cap_task_memcpy_get_max_buf_size) X(doca_dma_task_memcpy_set_conf) \
  X(doca_dma_task_memcpy_alloc_init) X(doca_dma_task_memcpy_as_task)
// clang-format on

struct DocaCalls {
#define X(name) decltype(&::name) name = nullptr;
  OFFPATH_DOCA_COMMON_CALLS(X)
  OFFPATH_DOCA_DMA_CALLS(X)
#undef X
};
using DocaCallsPtr = std::shared_ptr<const DocaCalls>;

// If a library is missing or too old: Error::unsupported, which names the package to install.
[[nodiscard]] Result<DocaCallsPtr> load_doca();

// DOCA's description of `code`, as a failure of `what`.
[[nodiscard]] tl::unexpected<Failure> doca_failure(const DocaCalls& calls, doca_error_t code, std::string_view what);

template <class Object>
struct DocaFree {
  doca_error_t (*call)(Object*) = nullptr;
  void operator()(Object* object) const noexcept { (void)call(object); }
};
template <class Object>
using DocaHandle = std::unique_ptr<Object, DocaFree<Object>>;

using DocaDev = DocaHandle<doca_dev>;
using DocaMap = DocaHandle<doca_mmap>;
using DocaInventory = DocaHandle<doca_buf_inventory>;
using DocaProgress = DocaHandle<doca_pe>;
using DocaDma = DocaHandle<doca_dma>;

}  // namespace offpath::link
