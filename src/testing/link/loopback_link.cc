#include "testing/link/loopback_link.h"

#include <utility>

#include "link/local/sealed_memory.h"
#include "testing/link/loopback_connection.h"

namespace offpath::link {

namespace {

using Connection = std::shared_ptr<LoopbackConnection>;

class LoopbackHost final : public HostLink {
 public:
  LoopbackHost(Connection connection, SegmentMemory channel)
      : connection_(std::move(connection)), channel_(std::move(channel)) {}
  ~LoopbackHost() override { connection_->host_closes(); }

  const LinkTraits& traits() const override { return connection_->traits(); }
  const wire::Welcome& welcome() const override { return connection_->welcome(); }
  MutableBytes channel_memory() override { return channel_.bytes(); }
  Result<SegmentMemory> allocate(std::uint64_t length) override { return allocate_sealed(length); }
  Status announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) override {
    return connection_->announce_segment(segment, memory, deadline);
  }
  void retire_segment(RegionId segment) override { connection_->retire_segment(segment); }
  Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void* base,
                                       std::uint64_t length) override {
    return connection_->announce_range(range, generation, base, length);
  }
  void retire_range(RegionId range, std::uint32_t generation) override { connection_->retire_range(range, generation); }
  void withdraw_range(RegionId range, std::uint32_t generation) override {
    connection_->withdraw_range(range, generation);
  }
  bool is_withdrawn(RegionId range, std::uint32_t generation) override {
    return connection_->is_withdrawn(range, generation);
  }
  void wake() override { connection_->host_wakes({}); }
  void wake_with(Bytes requests) override { connection_->host_wakes({requests.begin(), requests.end()}); }
  void wait(TimeNs deadline) override { connection_->host_waits(deadline); }
  int event_fd() const override { return connection_->host_event_fd(); }
  Status look() override { return connection_->host_looks(); }
  Result<Fd> take_descriptor(std::uint64_t ticket, TimeNs deadline) override {
    return connection_->take_descriptor(ticket, deadline);
  }
  Status offer(std::uint64_t number, int fd) override { return connection_->offer(number, fd); }
  void abandon() override { connection_->host_abandons(); }
  void close() override { connection_->host_closes(); }

 private:
  Connection connection_;
  SegmentMemory channel_;
};

class LoopbackAgent final : public AgentLink {
 public:
  explicit LoopbackAgent(Connection connection) : connection_(std::move(connection)) {}
  ~LoopbackAgent() override { connection_->agent_closes(); }

  const LinkTraits& traits() const override { return connection_->traits(); }
  Status attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                      std::uint32_t key) override {
    return connection_->attach_range(range, generation, base, length, key);
  }
  Status detach_range(RegionId range, std::uint32_t generation) override {
    return connection_->detach_range(range, generation);
  }
  MutableBytes mapped(RegionId segment) override { return connection_->mapped(segment); }
  void read(std::uint64_t token, std::span<const ReadPiece> pieces) override { connection_->read(token, pieces); }
  void write(std::uint64_t token, std::span<const WritePiece> pieces) override { connection_->write(token, pieces); }
  void wake() override { connection_->agent_wakes(); }
  Status hand_over(std::uint64_t ticket, int fd) override { return connection_->hand_over(ticket, fd); }
  std::size_t poll(TimeNs /*the fabric knows it*/, std::span<LinkEvent> events) override {
    return connection_->poll(events);
  }
  int event_fd() const override { return -1; }
  void refuse(const Failure&) override {}  // its host only learns that the agent is gone
  void close() override { connection_->agent_closes(); }

 private:
  Connection connection_;
};

}  // namespace

Result<LoopbackPair> make_loopback(std::shared_ptr<LoopbackFabric> fabric, const LoopbackOptions& options,
                                   const wire::ChannelLayout& layout) {
  OFP_TRY(wire::check_layout(layout));
  auto connection = std::make_shared<LoopbackConnection>(std::move(fabric), options);
  OFP_ASSIGN(SegmentMemory channel, allocate_sealed(layout.total_bytes()));
  OFP_TRY(connection->attach_channel(channel));
  LoopbackPair pair;
  pair.host = std::make_unique<LoopbackHost>(connection, std::move(channel));
  pair.agent = std::make_unique<LoopbackAgent>(connection);
  pair.fate = std::move(connection);
  return pair;
}

}  // namespace offpath::link
