#include "testing/tcp/packet_script_end.h"

#include <vector>

#include "testing/tcp/linked_program.h"

namespace offpath::tcp {
namespace {

std::vector<std::byte> script_bytes(std::uint64_t begin, std::uint64_t end) {
  std::vector<std::byte> bytes;
  for (std::uint64_t at = begin; at < end; ++at) bytes.push_back(script_byte(at));
  return bytes;
}

class BareEnd final : public ScriptEnd, private Owner {
 public:
  [[nodiscard]] Owner& owner() override { return *this; }
  void serve(Stack& stack) override { stack_ = &stack; }
  void react(TimeNs) override {}

  [[nodiscard]] bool listen(std::uint16_t port) override {
    return stack_->listen(test_family(), port, 1, script_receive_bytes, options_).has_value();
  }
  void connect(std::uint16_t local_port, Endpoint remote, TimeNs now) override {
    flow_ = stack_->connect(local_port, remote, 1, script_receive_bytes, now, options_).value();
  }
  void set_traffic_class(std::uint8_t traffic_class, TimeNs now) override {
    options_.traffic_class4 = options_.traffic_class6 = traffic_class & wire::tcp_traffic_class_mask;
    stack_->set_options(flow_, options_, now);
  }
  void choose(wire::TcpCongestion congestion, TimeNs now) override {
    options_.congestion = congestion;
    stack_->set_options(flow_, options_, now);
  }
  void offer(std::uint64_t position, TimeNs now) override { stack_->offer(flow_, position, now); }
  void finish(TimeNs) override { stack_->finish(flow_); }
  void abort(TimeNs now) override { stack_->abort(flow_, now); }
  void release(TimeNs now) override { stack_->release(flow_, now); }

  [[nodiscard]] std::uint64_t received() override { return listen_to_stack(), last_.received; }
  [[nodiscard]] std::uint64_t acknowledged() override { return listen_to_stack(), last_.acknowledged; }
  [[nodiscard]] bool finished() override { return listen_to_stack(), (told_ & change::finished) != 0; }
  [[nodiscard]] bool gone() override { return listen_to_stack(), (told_ & change::gone) != 0; }
  [[nodiscard]] std::optional<FlowError> closed() override {
    listen_to_stack();
    return (told_ & change::closed) != 0 ? std::optional(last_.error) : std::nullopt;
  }

 private:
  std::optional<std::uint64_t> accept(std::uint64_t, FlowId id, const FlowKey&) override {
    flow_ = id;
    return 1;
  }
  Payload payload(FlowId, std::uint64_t, std::uint64_t position, std::uint32_t size) override {
    return {Bytes(bytes_).subspan(position, size), Bytes()};
  }
  void store(FlowId, std::uint64_t, std::uint64_t, Bytes) override {}
  void listen_to_stack() {
    while (const auto change = stack_->next_change()) {
      last_ = *change;
      told_ |= change->what;
    }
  }

  Stack* stack_ = nullptr;
  FlowOptions options_;
  FlowId flow_;
  FlowChange last_;
  std::uint8_t told_ = 0;
  std::vector<std::byte> bytes_ = script_bytes(0, 1 << 20);
};

class ProgramEnd : public ScriptEnd {
 public:
  ProgramEnd() : service_(TcpServiceLimits{}), program_({8, 1 << 20, script_receive_bytes}) {}
  [[nodiscard]] Owner& owner() override { return service_; }
  void serve(Stack& stack) override {
    service_.serve(stack);
    open({0, true}, program_.memory);
  }
  void react(TimeNs now) override {
    service_.attach(now);
    service_.react(now);
  }

  [[nodiscard]] bool listen(std::uint16_t port) override {
    listener_ = area().listen(port, 2, wire::tcp_families, wire::tcp_no_handle, chosen()).value();
    return true;
  }
  void connect(std::uint16_t local_port, Endpoint remote, TimeNs) override {
    flow_ = area().connect({remote.address, remote.port}, local_port, 0, chosen()).value();
  }
  void set_traffic_class(std::uint8_t traffic_class, TimeNs) override {
    settings_.traffic_class4 = settings_.traffic_class6 = traffic_class;
    tell_settings();
  }
  void choose(wire::TcpCongestion congestion, TimeNs) override {
    settings_.congestion = congestion;
    tell_settings();
  }
  void offer(std::uint64_t position, TimeNs) override {
    const auto sent = area().send(flow(), script_bytes(offered_, position));
    OFP_ASSERT(sent && *sent == position - offered_);
    offered_ = position;
  }
  void finish(TimeNs) override { OFP_ASSERT(area().finish(flow())); }
  void abort(TimeNs) override { area().abort(flow()); }
  void release(TimeNs) override { area().close(flow()); }

  // Those that are in the ring have to be the peer's.
  [[nodiscard]] std::uint64_t received() override {
    const std::uint64_t count = look().received;
    std::vector<std::byte> bytes(count);
    if (count > 0 && area().receive(flow(), bytes, {.peeks = true}).value_or(0) != count) return ~0ull;
    return bytes == script_bytes(0, count) ? count : ~0ull;
  }
  [[nodiscard]] std::uint64_t acknowledged() override { return look().acknowledged; }
  [[nodiscard]] bool finished() override { return look().finished; }
  [[nodiscard]] bool gone() override {
    area().take_in();
    return service_.programs().front().flows == 0;
  }
  [[nodiscard]] std::optional<FlowError> closed() override {
    const SocketArea::Look now = look();
    OFP_ASSERT(now.error <= wire::TcpError::unreachable);  // those that a stack has, too
    return now.closed ? std::optional(static_cast<FlowError>(now.error)) : std::nullopt;
  }

 private:
  [[nodiscard]] SocketArea& area() noexcept { return *program_.area; }
  void tell_settings() {
    if (listener_ || flow_) area().set_flow_settings(flow(), settings_);
  }
  [[nodiscard]] const channel::FlowSettings* chosen() const noexcept {
    return settings_ == channel::FlowSettings{.gathers = true} ? nullptr : &settings_;
  }
  [[nodiscard]] SocketArea::Handle flow() {
    if (!flow_) flow_ = area().accept(*listener_).value();
    return *flow_;
  }
  [[nodiscard]] SocketArea::Look look() { return area().look(flow()).value(); }

  channel::FlowSettings settings_{.gathers = true};
  std::optional<SocketArea::Handle> listener_, flow_;
  std::uint64_t offered_ = 0;

 protected:
  void open(const TcpService::Who& who, MutableBytes memory) {
    OFP_ASSERT(service_.open(1, program_.layout, who, [memory] { return memory; }));
  }
  TcpService service_;
  TestProgram program_;
};

// Its area is behind a link of 20 us and 1 Gb/s.
class LinkedEnd final : public ProgramEnd {
 public:
  void serve(Stack& stack) override {
    service_.serve(stack);
    open({.user = 0, .privileged = true, .linked = true}, linked_.copy());
  }
  void react(TimeNs now) override {
    do {
      ProgramEnd::react(now);
      for (const auto& [program, process] : service_.take_wakes()) linked_.mirror().wake(process);
    } while (linked_.poll(now));
    OFP_ASSERT(linked_.status());
  }
  [[nodiscard]] TimeNs next_due() const override { return linked_.next_deadline(); }
  ~LinkedEnd() override { OFP_ASSERT(linked_.mirror().counters().looks > 0); }

 private:
  LinkedProgram linked_{program_, {.latency_ns = 20 * microsecond_ns, .bytes_per_second = 125'000'000}, 1};
};

}  // namespace

std::unique_ptr<ScriptEnd> make_bare_end() { return std::make_unique<BareEnd>(); }
std::unique_ptr<ScriptEnd> make_program_end() { return std::make_unique<ProgramEnd>(); }
std::unique_ptr<ScriptEnd> make_linked_end() { return std::make_unique<LinkedEnd>(); }

}  // namespace offpath::tcp
