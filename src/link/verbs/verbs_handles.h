// libibverbs and librdmacm, loaded on demand, and one owner for each of their objects.
//
// Offpath's binaries are not linked with these libraries: a program that uses another kind of address loads neither.
// Functions that their headers define inline (posting, polling) are called through the objects themselves.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>

#include "base/bytes.h"
#include "base/status.h"

#undef ibv_reg_mr  // macros around the functions of these names
#undef ibv_query_port

namespace offpath::link {

// clang-format off: a list
#define OFFPATH_VERBS_CALLS(X) \
  X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_open_device) X(ibv_close_device) X(ibv_query_device) \
  X(ibv_query_port) \
  X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_reg_mr) X(ibv_dereg_mr) \
  X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) X(ibv_create_cq) X(ibv_destroy_cq) \
  X(ibv_get_cq_event) X(ibv_ack_cq_events) X(ibv_create_qp) X(ibv_modify_qp) X(ibv_destroy_qp) X(ibv_wc_status_str)
// clang-format on
// clang-format off: a list
#define OFFPATH_RDMACM_CALLS(X) \
  X(rdma_create_event_channel) X(rdma_destroy_event_channel) X(rdma_create_id) X(rdma_destroy_id) X(rdma_bind_addr) \
  X(rdma_listen) X(rdma_get_src_port) X(rdma_resolve_addr) X(rdma_resolve_route) X(rdma_connect) X(rdma_accept) \
  X(rdma_reject) X(rdma_establish) X(rdma_disconnect) X(rdma_get_cm_event) X(rdma_ack_cm_event) X(rdma_init_qp_attr) \
  X(rdma_event_str)
// clang-format on

struct VerbsCalls {
#define X(name) decltype(&::name) name = nullptr;
  OFFPATH_VERBS_CALLS(X)
  OFFPATH_RDMACM_CALLS(X)
#undef X
};
using VerbsCallsPtr = std::shared_ptr<const VerbsCalls>;

// If a library is missing or too old: Error::unsupported, which says what to install.
[[nodiscard]] Result<VerbsCallsPtr> load_verbs();

template <class Object, class Returned>
struct VerbsFree {
  Returned (*call)(Object*) = nullptr;
  void operator()(Object* object) const noexcept { (void)call(object); }
};
template <class Object, class Returned = int>
using VerbsHandle = std::unique_ptr<Object, VerbsFree<Object, Returned>>;

using VerbsContext = VerbsHandle<ibv_context>;
using ProtectionDomain = VerbsHandle<ibv_pd>;
using MemoryRegion = VerbsHandle<ibv_mr>;
using MemoryWindow = VerbsHandle<ibv_mw>;
using CompletionChannel = VerbsHandle<ibv_comp_channel>;
using CompletionQueue = VerbsHandle<ibv_cq>;
using QueuePair = VerbsHandle<ibv_qp>;
using EventChannel = VerbsHandle<rdma_event_channel, void>;
using ConnectionId = VerbsHandle<rdma_cm_id>;

// Error::no_memory states the limit of locked memory if that may be the reason.
[[nodiscard]] Result<MemoryRegion> register_memory(const VerbsCalls& calls, ibv_pd* domain, const void* base,
                                                   std::uint64_t length, int access);
// The same for a segment, which lasts: with huge pages where the machine grants them.
[[nodiscard]] Result<MemoryRegion> register_segment(const VerbsCalls& calls, ibv_pd* domain, MutableBytes memory,
                                                    int access);

}  // namespace offpath::link
