#include "link/doca/doca_agent_link.h"

#include <algorithm>

#include "link/doca/doca_link.h"
#include "wire/region.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr std::uint32_t tasks_wanted = 512;
constexpr std::uint64_t task_bytes_wanted = 1 << 20;
constexpr unsigned progress_of_a_look = 4096;
constexpr TimeNs stop_wait_ns = second_ns;  // for the engine to return its tasks
// after a failed task, for the socket to report the program's end
constexpr TimeNs socket_wait_ns = 50 * millisecond_ns;

}  // namespace

// ---- life

Status check_doca(const Address& address) {
  auto device = open_doca_device(DocaRole::imports);
  if (!device) return fail(device.error().code, "{}: {}", address.text(), device.error().message);
  return {};
}

Result<std::unique_ptr<AgentLink>> accept_doca(ControlSocket socket, std::uint64_t channel_segment_bytes,
                                               const SegmentLimits& limits, std::shared_ptr<CardDevices> devices,
                                               TimeNs deadline) {
  auto card = DocaCard::open(devices.get());
  if (!card) {  // the program waits for an answer to its export
    send_refusal(socket, card.error());
    return tl::unexpected<Failure>(std::move(card).error());
  }
  return DocaAgentLink::create(std::move(socket), std::move(*card), channel_segment_bytes, limits, deadline);
}

Result<std::unique_ptr<DocaAgentLink>> DocaAgentLink::create(ControlSocket socket, std::shared_ptr<DocaCard> card,
                                                             std::uint64_t channel_segment_bytes,
                                                             const SegmentLimits& limits, TimeNs deadline) {
  std::unique_ptr<DocaAgentLink> link(
      new DocaAgentLink(std::move(socket), std::move(card), channel_segment_bytes, limits, deadline));
  if (auto started = link->start(); !started) {
    send_refusal(link->socket(), started.error());
    return tl::unexpected<Failure>(std::move(started).error());
  }
  return link;
}

DocaAgentLink::DocaAgentLink(ControlSocket socket, std::shared_ptr<DocaCard> card, std::uint64_t channel_segment_bytes,
                             const SegmentLimits& limits, TimeNs deadline)
    : CardAgentLink(std::move(socket), {"doca", true, false, 0, std::string(doca_reason)}, WriteOrder::none,
                    {channel_segment_bytes, channel_segment_bytes}, limits, deadline),
      card_(std::move(card)),
      device_(card_->device()) {}

DocaAgentLink::~DocaAgentLink() { close(); }

Status DocaAgentLink::start() {
  const DocaCalls& calls = *device_.calls;
  OFP_TRY(watch_descriptors());
  doca_dma* dma = nullptr;
  if (const doca_error_t code = calls.doca_dma_create(device_.dev.get(), &dma); code != DOCA_SUCCESS)
    return doca_failure(calls, code, "doca_dma_create");
  dma_ = DocaDma(dma, {calls.doca_dma_destroy});
  std::uint32_t tasks_max = 0;
  if (const doca_error_t code = calls.doca_dma_cap_get_max_num_tasks(dma, &tasks_max); code != DOCA_SUCCESS)
    return doca_failure(calls, code, "doca_dma_cap_get_max_num_tasks");
  const std::uint32_t tasks = std::clamp<std::uint32_t>(tasks_max, 1, tasks_wanted);
  OFP_TRY(start_context(tasks));
  OFP_TRY(watch_descriptor(completions_fd_));

  transfers_.resize(tasks);
  for (Transfer& transfer : transfers_) idle_transfers_.push_back(&transfer);
  std::uint64_t task_bytes = 0;
  if (const doca_error_t code =
          calls.doca_dma_cap_task_memcpy_get_max_buf_size(calls.doca_dev_as_devinfo(device_.dev.get()), &task_bytes);
      code != DOCA_SUCCESS)
    return doca_failure(calls, code, "doca_dma_cap_task_memcpy_get_max_buf_size");
  return begin_posting({tasks, std::clamp<std::uint64_t>(task_bytes, 1, task_bytes_wanted), 0}, card_);
}

Status DocaAgentLink::start_context(std::uint32_t tasks) {
  const DocaCalls& calls = *device_.calls;
  doca_ctx* context = calls.doca_dma_as_ctx(dma_.get());
  doca_pe* engine = nullptr;
  doca_buf_inventory* inventory = nullptr;
  doca_data self{};
  self.ptr = this;
  doca_error_t code = calls.doca_pe_create(&engine);
  progress_ = DocaProgress(engine, {calls.doca_pe_destroy});
  if (code == DOCA_SUCCESS) code = calls.doca_buf_inventory_create(std::size_t{2} * tasks, &inventory);
  inventory_ = DocaInventory(inventory, {calls.doca_buf_inventory_destroy});
  if (code == DOCA_SUCCESS) code = calls.doca_buf_inventory_start(inventory_.get());
  if (code == DOCA_SUCCESS) code = calls.doca_dma_task_memcpy_set_conf(dma_.get(), &on_moved, &on_failed, tasks);
  if (code == DOCA_SUCCESS) code = calls.doca_ctx_set_user_data(context, self);
  if (code == DOCA_SUCCESS) code = calls.doca_ctx_set_state_changed_cb(context, &on_state);
  if (code == DOCA_SUCCESS) code = calls.doca_pe_connect_ctx(progress_.get(), context);
  if (code == DOCA_SUCCESS) code = calls.doca_pe_get_notification_handle(progress_.get(), &completions_fd_);
  if (code != DOCA_SUCCESS) return doca_failure(calls, code, "preparing a DMA context");
  code = calls.doca_ctx_start(context);
  if (code != DOCA_SUCCESS) return doca_failure(calls, code, "starting a DMA context");
  context_ = context;
  return {};
}

// The context is stopped before any memory that it could touch is released.
void DocaAgentLink::break_off() noexcept {
  ending_ = true;
  if (context_ == nullptr) return;
  const DocaCalls& calls = *device_.calls;
  (void)calls.doca_ctx_stop(context_);
  doca_ctx_states state = DOCA_CTX_STATE_STOPPING;
  const TimeNs deadline = monotonic_ns() + stop_wait_ns;
  while (calls.doca_ctx_get_state(context_, &state) == DOCA_SUCCESS && state != DOCA_CTX_STATE_IDLE &&
         monotonic_ns() < deadline)
    (void)calls.doca_pe_progress(progress_.get());
  context_ = nullptr;
}

void DocaAgentLink::end_card() noexcept {
  imports_.clear();
  keys_.clear();
  moved_.clear();
  dma_.reset();
  progress_.reset();
  inventory_.reset();
}

Failure DocaAgentLink::why_not_open() const {
  return {Error::timeout, "the program did not export its channel segment in time"};
}

// ---- exports of the program

Status DocaAgentLink::take_announcement(const ControlSocket::Frame& frame) {
  if (frame.type != ControlType::memory_export) return unexpected_frame(frame.type, "on an open channel");
  OFP_ASSIGN(const wire::MemoryExport exported, wire::decode_memory_export(frame.payload));
  const bool opens = exported.region == wire::channel_segment;
  if (!opens && !is_open())
    return fail(Error::protocol, "memory export: region {:#x} before the channel segment", exported.region);
  if (wire::is_segment(exported.region)) OFP_TRY(check_segment(exported.region, exported.length));
  if (imports_.contains(exported.key)) return fail(Error::protocol, "memory export: key {} twice", exported.key);
  if (keys_.contains(name_of(exported.region, exported.generation)))
    return fail(Error::protocol, "memory export: region {:#x} of generation {} twice", exported.region,
                exported.generation);
  wire::Outcome outcome{exported.key, import(exported)};
  if (!outcome.status && outcome.status.error().code == Error::protocol) return std::move(outcome.status);
  if (outcome.status && wire::is_segment(exported.region))
    OFP_TRY(attach_segment(exported.region, exported.address, exported.length, exported.key));
  std::vector<std::byte> payload;
  wire::encode(outcome, payload);
  OFP_TRY(socket().send(ControlType::imported, payload));
  return opens && is_open() ? take_completions() : Status{};  // arms the progress engine
}

Status DocaAgentLink::import(const wire::MemoryExport& exported) {
  if (imports_.size() >= imports_max)
    return fail(Error::too_large, "the agent imports at most {} ranges and segments", imports_max);
  OFP_ASSIGN(DocaMap map, import_map(device_, exported.descriptor, exported.address, exported.length));
  imports_.emplace(exported.key,
                   Import{exported.region, exported.generation, exported.address, exported.length, std::move(map)});
  keys_.emplace(name_of(exported.region, exported.generation), exported.key);
  return {};
}

// The ring's entry for a range must match the export.
Status DocaAgentLink::attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                                   std::uint32_t key) {
  const auto at = imports_.find(key);
  if (!wire::is_segment(range) && length > 0 &&
      (at == imports_.end() || at->second.region != range || at->second.generation != generation ||
       at->second.address != base || at->second.length != length))
    return fail(Error::unannounced, "range {}: {} bytes of generation {} were not exported with key {}", range, length,
                generation, key);
  return CardAgentLink::attach_range(range, generation, base, length, key);
}

void DocaAgentLink::forget(const wire::Withdrawal& withdrawal) noexcept {
  const auto at = keys_.find(name_of(withdrawal.region, withdrawal.generation));
  if (at == keys_.end()) return;
  imports_.erase(at->second);
  keys_.erase(at);
}

// ---- posting

Status DocaAgentLink::post(bool is_read, Chain& chain, std::span<const Request> requests) {
  std::uint32_t key = 0;
  doca_mmap* remote = nullptr;
  for (const Request& request : requests) {
    if (request.key != key || remote == nullptr) {
      const auto at = imports_.find(request.key);
      if (at == imports_.end()) return fail(Error::protocol, "requests name the ended export {}", request.key);
      key = request.key;
      remote = at->second.map.get();
    }
    OFP_TRY(submit(is_read, chain, request, remote));
  }
  return {};
}

Result<doca_buf*> DocaAgentLink::buffer(doca_mmap* map, void* memory, std::uint64_t length, std::uint64_t data_length) {
  doca_buf* made = nullptr;
  const doca_error_t code = device_.calls->doca_buf_inventory_buf_get_by_args(inventory_.get(), map, memory, length,
                                                                              memory, data_length, &made);
  if (code != DOCA_SUCCESS) return doca_failure(*device_.calls, code, fmt::format("a DOCA buffer of {} bytes", length));
  return made;
}

// A task appends to its target buffer's data, which is empty.
Status DocaAgentLink::submit(bool is_read, Chain& chain, const Request& request, doca_mmap* remote) {
  const DocaCalls& calls = *device_.calls;
  auto* own = reinterpret_cast<doca_mmap*>(request.local_key);
  auto* there = reinterpret_cast<void*>(request.address);
  OFP_ASSERT(!idle_transfers_.empty());
  Transfer& transfer = *idle_transfers_.back();
  transfer = {this, &chain, nullptr, nullptr};
  OFP_ASSIGN(transfer.from, is_read ? buffer(remote, there, request.length, request.length)
                                    : buffer(own, request.local, request.length, request.length));
  idle_transfers_.pop_back();
  doca_dma_task_memcpy* task = nullptr;
  auto target = is_read ? buffer(own, request.local, request.length, 0) : buffer(remote, there, request.length, 0);
  if (!target) {
    end_transfer(transfer, nullptr);
    return tl::unexpected<Failure>(std::move(target).error());
  }
  transfer.to = *target;
  doca_data data{};
  data.ptr = &transfer;
  doca_error_t code = calls.doca_dma_task_memcpy_alloc_init(dma_.get(), transfer.from, transfer.to, data, &task);
  if (code == DOCA_SUCCESS) code = calls.doca_task_submit(calls.doca_dma_task_memcpy_as_task(task));
  if (code == DOCA_SUCCESS) return {};
  end_transfer(transfer, task);
  return doca_failure(calls, code, fmt::format("posting a DMA task of {} bytes", request.length));
}

// ---- completions

void DocaAgentLink::end_transfer(Transfer& transfer, doca_dma_task_memcpy* task) noexcept {
  const DocaCalls& calls = *device_.calls;
  if (task != nullptr) calls.doca_task_free(calls.doca_dma_task_memcpy_as_task(task));
  for (doca_buf* each : {transfer.from, transfer.to})
    if (each != nullptr) (void)calls.doca_buf_dec_refcount(each, nullptr);
  idle_transfers_.push_back(&transfer);
}

void DocaAgentLink::on_moved(doca_dma_task_memcpy* task, doca_data transfer, doca_data) {
  auto& of = *static_cast<Transfer*>(transfer.ptr);
  DocaAgentLink& link = *of.link;
  link.end_transfer(of, task);
  if (!link.ending_) link.moved_.push_back(of.chain);
}

void DocaAgentLink::on_failed(doca_dma_task_memcpy* task, doca_data transfer, doca_data) {
  auto& of = *static_cast<Transfer*>(transfer.ptr);
  DocaAgentLink& link = *of.link;
  const DocaCalls& calls = *link.device_.calls;
  const doca_error_t code = calls.doca_task_get_status(calls.doca_dma_task_memcpy_as_task(task));
  link.end_transfer(of, task);
  link.failed({Error::io,
               fmt::format("a DMA task failed (\"{}\", {}): the program's memory no longer exists, or the card failed",
                           calls.doca_error_get_descr(code), static_cast<int>(code))});
}

void DocaAgentLink::on_state(doca_data link, doca_ctx*, doca_ctx_states, doca_ctx_states now) {
  if (now == DOCA_CTX_STATE_STOPPING || now == DOCA_CTX_STATE_IDLE)
    static_cast<DocaAgentLink*>(link.ptr)->failed({Error::io, "the card's DMA context stopped"});
}

// Only the first failure is reported.
void DocaAgentLink::failed(Failure why) {
  if (ending_ || failed_) return;
  failed_ = std::move(why);
  failed_until_ = deadline_after(time(), socket_wait_ns);
  stop_posting();
}

void DocaAgentLink::progress() noexcept {
  for (unsigned i = 0; i < progress_of_a_look && device_.calls->doca_pe_progress(progress_.get()) != 0; ++i) {
  }
  for (Chain* chain : moved_) moved(*chain, 1);  // outside of the engine's calls, because it releases memory
  moved_.clear();
  settle();
}

Status DocaAgentLink::take_completions() {
  progress();
  if (!failed_ && !armed_) {
    // Completions before this call raise no event: look once more after it.
    if (const doca_error_t code = device_.calls->doca_pe_request_notification(progress_.get()); code != DOCA_SUCCESS)
      return doca_failure(*device_.calls, code, "doca_pe_request_notification");
    armed_ = true;
    progress();
  }
  if (!failed_) return {};
  if (time() >= failed_until_) return tl::unexpected<Failure>(*failed_);
  look_again();
  return {};
}

Status DocaAgentLink::look_at(int fd) {
  if (fd != completions_fd_) return {};
  (void)device_.calls->doca_pe_clear_notification(progress_.get(), completions_fd_);
  armed_ = false;
  return take_completions();
}

}  // namespace offpath::link
