// An arbitrary peer and an arbitrary owner, in any order: no assertion fails, no byte is stored beyond the allowed
// position or before the received one, and memory stays bounded. Each step is two bytes for the action, and its
// arguments.
#include <array>
#include <optional>
#include <vector>

#include "tcp/segment/ethernet.h"
#include "tcp/segment/frame_writer.h"
#include "tcp/segment/neighbour_message.h"
#include "tcp/segment/segmentation.h"
#include "tcp/stack/stack.h"

using namespace offpath;
using namespace offpath::tcp;

namespace {

constexpr IpAddress here = ipv4(0x0a000001), there = ipv4(0x0a000002);
constexpr IpAddress of_v6(std::uint8_t end) { return {{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end}}; }
constexpr IpAddress here6 = of_v6(1), there6 = of_v6(2);
constexpr MacAddress mac_here{2, 0, 0, 0, 0, 1}, mac_there{2, 0, 0, 0, 0, 2};
constexpr std::uint64_t room = 10'000;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  [[nodiscard]] bool empty() const { return left_ == 0; }
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  std::uint16_t word() { return static_cast<std::uint16_t>(byte() | byte() << 8); }
  // Mostly near, sometimes anywhere.
  std::uint32_t distance() {
    const std::uint16_t value = word();
    return value & 0x8000 ? std::uint32_t{value} << 17 : static_cast<std::uint32_t>(value) - 0x2000;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

struct AnyOwner final : Owner {
  struct State {
    FlowId id;
    std::uint64_t allowed = room, received = 0, offered = 0, acknowledged = 0;
    bool gone = false;
  };
  std::vector<State> flows;
  std::vector<std::byte> bytes = std::vector<std::byte>(1 << 16);

  std::optional<std::uint64_t> accept(std::uint64_t, FlowId flow, const FlowKey&) override {
    if (flows.size() % 7 == 6) {
      flows.push_back({{}, 0, 0, 0, 0, true});
      return std::nullopt;
    }
    flows.push_back({flow});
    return flows.size() - 1;
  }
  Payload payload(FlowId id, std::uint64_t tag, std::uint64_t position, std::uint32_t size) override {
    const State& flow = flows[tag];
    OFP_ASSERT(!flow.gone && flow.id == id && position >= flow.acknowledged && position + size <= flow.offered);
    return {Bytes(bytes).first(std::min<std::size_t>(size, 999)),
            Bytes(bytes).first(size - std::min<std::size_t>(size, 999))};
  }
  void store(FlowId id, std::uint64_t tag, std::uint64_t position, Bytes stored) override {
    const State& flow = flows[tag];
    OFP_ASSERT(!flow.gone && flow.id == id && position >= flow.received && position + stored.size() <= flow.allowed);
  }
};

class Fuzzed {
 public:
  explicit Fuzzed(Input& input) : input_(input), control_(congestion_control(algorithm(input.byte())).value()) {
    StackOptions options;
    options.v4 = {here, 24, {}};
    options.v6 = {here6, 64, {}};
    const std::uint8_t begins = input.byte();
    options.start.address_checks = begins % 2;
    if (begins & 2) options.ecn = EcnUse::accurate;
    options.secret = {1, 2};
    options.flows_max = 8;
    options.half_open_max = 4;
    options.time_wait_max = 4;
    PortCapabilities port{mac_here, 1500, false, 0};
    if (input.byte() % 2) port.checksum = true, port.segmentation_bytes = 65'536;
    stack_.emplace(options, port, *control_, owner_, now_);
    for (const IpFamily family : {IpFamily::v4, IpFamily::v6}) OFP_ASSERT(stack_->listen(family, 80, 1, room));
  }

  void step() {
    switch (input_.byte() % 10) {
      case 0:
        return raw();
      case 1:
        now_ += TimeNs{input_.word()} * 100 * microsecond_ns, stack_->on_time(now_);
        break;
      case 2:
        now_ += TimeNs{input_.byte()} * second_ns, stack_->on_time(now_);
        break;
      case 3:
        command();
        break;
      case 4:
        neighbour();
        break;
      default:
        segment();
    }
    look();
  }

 private:
  static std::string_view algorithm(std::uint8_t which) {
    constexpr std::string_view names[] = {"new_reno", "cubic", "dctcp", "timely"};
    return names[which % 4];
  }
  void raw() {
    std::vector<std::byte> bytes(input_.byte());
    for (auto& byte : bytes) byte = std::byte{input_.byte()};
    if (bytes.size() > ethernet_header_bytes && bytes[0] == std::byte{6})  // for this station, and of IPv6
      write_ethernet_header({mac_here, mac_there, ethertype_ipv6}, bytes.data());
    stack_->receive({bytes, true}, now_);
  }
  void neighbour() {
    FrameToSend frame;
    const std::uint8_t how = input_.byte();
    const bool is_v6 = how & 16;
    NeighbourMessage message{how % 2 != 0, mac_there, is_v6 ? there6 : there, mac_here, is_v6 ? here6 : here};
    if (how & 2)
      for (auto& byte : message.sender_mac) byte = input_.byte();
    if (how & 4) message.sender.bytes[15] = input_.byte();
    if (how & 8) message.target.bytes[15] = input_.byte();
    if (how & 32) message.solicited = false;
    if (is_v6 && how & 64) message.sender = {};
    write_neighbour_frame(message, mac_there, how & 128 ? mac_here : group_mac(message.target), frame);
    stack_->receive({whole_frame(frame), false}, now_);
  }
  const Flow* some_flow() {
    if (owner_.flows.empty()) return nullptr;
    return stack_->flow(owner_.flows[input_.byte() % owner_.flows.size()].id);
  }
  void segment() {
    Segment segment;
    const Flow* flow = some_flow();
    const bool is_v6 = input_.byte() % 2 != 0;
    segment.key = {{is_v6 ? there6 : there, static_cast<std::uint16_t>(1000 + input_.byte() % 8)},
                   {is_v6 ? here6 : here, static_cast<std::uint16_t>(80 + input_.byte() % 2)}};
    Sequence sequence(7), acknowledgement = last_sent_;
    if (flow != nullptr) {
      segment.key = {flow->key.remote, flow->key.local};
      sequence = flow->receive_next;
      acknowledgement = flow->una;
    }
    segment.flags = input_.byte();
    const std::uint8_t marks = input_.byte();
    if (marks & 1) segment.flags |= flag::ae;
    segment.ecn = static_cast<Ecn>(marks >> 1 & 3);
    if (marks & 8) segment.options.ecn_bytes = EcnBytes{.congested = input_.word()};
    if (marks & 16 && segment.options.ecn_bytes) segment.options.ecn_bytes->capable_0 = input_.word();
    if (marks & 32 && segment.options.ecn_bytes) segment.options.ecn_bytes->capable_1 = input_.word();
    const std::uint8_t which = input_.byte();
    segment.sequence = which & 1 ? sequence + input_.distance() : sequence;
    segment.acknowledgement = which & 2         ? acknowledgement + input_.distance()
                              : flow != nullptr ? flow->next
                                                : acknowledgement + 1;
    segment.window = which & 4 ? input_.word() : 65'535;
    if (which & 8) segment.options.mss = input_.word();
    if (which & 16) segment.options.window_scale = input_.byte() % 15, segment.options.sack_permitted = true;
    if (which & 32) segment.options.timestamps = Timestamps{input_.word(), input_.word()};
    if (which & 64) {
      segment.options.sack_count = 1 + input_.byte() % 3;
      for (std::size_t i = 0; i < segment.options.sack_count; ++i) {
        const Sequence begin = acknowledgement + input_.distance();
        segment.options.sack[i] = {begin, begin + input_.word()};
      }
    }
    FrameToSend frame;
    const std::size_t size = which & 128 ? input_.word() % 3000 : 0;
    write_segment_frame(segment, {Bytes(owner_.bytes).first(size), Bytes()}, 1460, mac_there, mac_here, true, frame);
    stack_->receive({whole_frame(frame), true}, now_);
  }
  void command() {
    const std::uint8_t what = input_.byte() % 7;
    if (what == 0) {
      if (stack_->flows() >= 8) return;
      const std::uint64_t tag = owner_.flows.size();
      owner_.flows.push_back({});
      const auto made = stack_->connect(0, {input_.byte() % 2 != 0 ? there6 : there, 1000}, tag, room, now_);
      if (made) owner_.flows[tag].id = *made;
      owner_.flows[tag].gone = !made;
      return;
    }
    if (owner_.flows.empty()) return;
    AnyOwner::State& flow = owner_.flows[input_.byte() % owner_.flows.size()];
    if (flow.gone) return;
    // Positions that a flow does not accept any more are not offered; find() tells.
    if (what == 1 && !finished(flow.id))
      stack_->offer(flow.id,
                    flow.offered = std::min<std::uint64_t>(flow.offered + input_.word(), flow.acknowledged + 60'000),
                    now_);
    if (what == 2) stack_->allow(flow.id, flow.allowed = std::max(flow.allowed, flow.received + input_.word()), now_);
    if (what == 3) stack_->finish(flow.id);
    if (what == 4) stack_->abort(flow.id, now_);
    if (what == 5) stack_->release(flow.id, now_);
    if (what == 6) {
      FlowOptions options;
      options.nagle = input_.byte() % 2;
      options.delayed_ack_ns = input_.byte() % 2 * millisecond_ns;
      options.keepalive_idle_ns = input_.byte() * millisecond_ns;
      stack_->set_options(flow.id, options, now_);
    }
  }
  bool finished(FlowId id) {
    const Flow* flow = stack_->flow(id);
    return flow == nullptr || flow->fin_wanted || flow->state == FlowState::closed;
  }
  void look() {
    std::array<FrameToSend, 16> frames;
    for (int i = 0; i < 20; ++i) {
      const std::size_t count = stack_->transmit(frames, now_);
      for (std::size_t at = 0; at < count; ++at) {
        const auto bytes = whole_frame(frames[at]);
        OFP_ASSERT(bytes.size() <= 65'589);
        if (frames[at].tcp_offset != 0)
          last_sent_ = Sequence(load_be32(&frames[at].header[frames[at].tcp_offset + 4u]));
      }
      if (count == 0) break;
    }
    while (const auto what = stack_->next_change()) {
      AnyOwner::State& flow = owner_.flows.at(what->tag);
      OFP_ASSERT(!flow.gone && flow.id == what->flow && what->received <= flow.allowed &&
                 what->acknowledged <= flow.offered);
      OFP_ASSERT(what->received >= flow.received && what->acknowledged >= flow.acknowledged);
      flow.received = what->received;
      flow.acknowledged = what->acknowledged;
      flow.gone = (what->what & change::gone) != 0;
    }
    OFP_ASSERT(stack_->flows() <= 8 && stack_->half_open() <= 4);
    OFP_ASSERT(stack_->next_due() > now_ - 20 * microsecond_ns);
  }

  Input& input_;
  std::unique_ptr<const CongestionControl> control_;
  AnyOwner owner_;
  std::optional<Stack> stack_;
  TimeNs now_ = second_ns;
  Sequence last_sent_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Fuzzed fuzzed(input);
  while (!input.empty()) fuzzed.step();
  return 0;
}
