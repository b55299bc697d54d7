// The agent's end over DOCA DMA: reads and writes are memcpy tasks of the card's engine between memory that the program
// exported and the agent's own. Read doca_link.h, doca_device.h and card_agent_link.h first.
//
// Each request of a chain is one task. The engine completes tasks in any order, so a write begins after the previous
// one has been moved; reads overtake writes and each other.
//
// A failed task ends the link, as a stopped context does: no more tasks can be posted. The failure may be reported
// before the socket shows that the program was killed, so the link watches the socket for a moment before it reports
// the cause. When the link ends, the context is stopped first and its tasks are taken back, within at most a second:
// afterwards the card touches no memory.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "link/card/card_agent_link.h"
#include "link/doca/doca_device.h"

namespace offpath::link {

class DocaAgentLink final : public CardAgentLink {
 public:
  static constexpr std::size_t imports_max = 65536;  // of one channel

  [[nodiscard]] static Result<std::unique_ptr<DocaAgentLink>> create(ControlSocket socket,
                                                                     std::shared_ptr<DocaCard> card,
                                                                     std::uint64_t channel_segment_bytes,
                                                                     const SegmentLimits& limits, TimeNs deadline);
  ~DocaAgentLink() override;

  Status attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                      std::uint32_t key) override;

 private:
  struct Import {
    RegionId region;
    std::uint32_t generation;
    std::uint64_t address, length;
    DocaMap map;
  };
  // One posted task.
  struct Transfer {
    DocaAgentLink* link;
    Chain* chain;
    doca_buf *from, *to;
  };

  DocaAgentLink(ControlSocket socket, std::shared_ptr<DocaCard> card, std::uint64_t channel_segment_bytes,
                const SegmentLimits& limits, TimeNs deadline);
  [[nodiscard]] Status start();
  [[nodiscard]] Status start_context(std::uint32_t tasks);

  Status post(bool is_read, Chain& chain, std::span<const Request> requests) override;
  Status take_completions() override;
  Status look_at(int fd) override;
  Status take_announcement(const ControlSocket::Frame& frame) override;
  Failure why_not_open() const override;
  void forget(const wire::Withdrawal& withdrawal) noexcept override;
  void break_off() noexcept override;
  void end_card() noexcept override;

  [[nodiscard]] static std::uint64_t name_of(RegionId region, std::uint32_t generation) noexcept {
    return std::uint64_t{region} << 32 | generation;
  }
  [[nodiscard]] Status import(const wire::MemoryExport& exported);
  [[nodiscard]] Status submit(bool is_read, Chain& chain, const Request& request, doca_mmap* remote);
  [[nodiscard]] Result<doca_buf*> buffer(doca_mmap* map, void* memory, std::uint64_t length, std::uint64_t data_length);
  void end_transfer(Transfer& transfer, doca_dma_task_memcpy* task) noexcept;
  void progress() noexcept;
  void failed(Failure why);
  static void on_moved(doca_dma_task_memcpy* task, doca_data transfer, doca_data link);
  static void on_failed(doca_dma_task_memcpy* task, doca_data transfer, doca_data link);
  static void on_state(doca_data link, doca_ctx* context, doca_ctx_states before, doca_ctx_states now);

  const std::shared_ptr<DocaCard> card_;
  const DocaDevice& device_;
  DocaProgress progress_;
  DocaInventory inventory_;
  DocaDma dma_;
  doca_ctx* context_ = nullptr;  // of dma_; null: not started, or stopped
  int completions_fd_ = -1;      // of progress_
  bool armed_ = false, ending_ = false;
  std::vector<Transfer> transfers_;
  std::vector<Transfer*> idle_transfers_;
  std::vector<Chain*> moved_;                          // one for each completed task, until progress() has handled it
  std::unordered_map<std::uint32_t, Import> imports_;  // by key
  std::unordered_map<std::uint64_t, std::uint32_t> keys_;  // by region and generation, each of which occurs once
  std::optional<Failure> failed_;
  TimeNs failed_until_ = 0;
};

}  // namespace offpath::link
