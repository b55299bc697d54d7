#include "testing/tcp/packet_script.h"

#include <charconv>
#include <cstdlib>
#include <map>
#include <sstream>
#include <vector>

#include "base/config.h"
#include "tcp/segment/big_endian.h"
#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/frame_writer.h"
#include "tcp/segment/icmp.h"
#include "tcp/segment/neighbour_message.h"
#include "tcp/segment/segmentation.h"
#include "testing/tcp/family.h"
#include "testing/tcp/packet_script_end.h"

namespace offpath::tcp {
namespace {

const IpAddress here = test_address(0x0a000001), there = test_address(0x0a000002);
constexpr MacAddress mac_here{2, 0, 0, 0, 0, 1}, mac_there{2, 0, 0, 0, 0, 2};
constexpr std::uint16_t peer_port = 5000;
constexpr std::uint32_t peer_initial = 0xfffffc00;  // so that numbers wrap in every script of more than a kilobyte

struct Line {
  std::string flags;
  std::optional<std::uint32_t> begin, end, ack, window, mss, scale, merged, traffic_class;
  bool sack_permitted = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> sack;
  std::optional<Timestamps> timestamps;
  std::optional<Ecn> ecn;
  bool capable = false, not_capable = false, no_bytes = false;
  std::optional<std::uint8_t> ace;
  std::optional<EcnBytes> bytes;
};

// "E0,CE,E1", or ",E1,CE".
EcnBytes read_bytes(std::string text) {
  EcnBytes told;
  const bool reverse = text.starts_with(',');
  std::istringstream fields(reverse ? text.substr(1) : text);
  std::optional<std::uint32_t>* const to[] = {reverse ? &told.capable_1 : &told.capable_0, &told.congested,
                                              reverse ? &told.capable_0 : &told.capable_1};
  std::size_t i = 0;
  for (std::string field; i < 3 && std::getline(fields, field, ',');)
    *to[i++] = static_cast<std::uint32_t>(std::stoul(field));
  return told;
}

std::pair<std::uint32_t, std::uint32_t> numbers(const std::string& text) {
  const auto colon = text.find(':');
  const auto first = static_cast<std::uint32_t>(std::stoul(text));
  return {first, colon == std::string::npos ? first : static_cast<std::uint32_t>(std::stoul(text.substr(colon + 1)))};
}

Line read_line(std::istringstream& words) {
  Line line;
  std::string word;
  words >> line.flags;
  while (words >> word) {
    std::string value;
    if (word == "ce" || word == "ect0" || word == "ect1") {
      line.ecn = word == "ce" ? Ecn::congested : word == "ect0" ? Ecn::capable_0 : Ecn::capable_1;
    } else if (word == "ect") {
      line.capable = true;
    } else if (word == "noect") {
      line.not_capable = true;
    } else if (word == "bytes") {
      words >> value;
      line.no_bytes = value == "none";
      if (!line.no_bytes) line.bytes = read_bytes(value);
    } else if (std::isdigit(static_cast<unsigned char>(word[0]))) {
      std::tie(line.begin, line.end) = numbers(word);
    } else if (word == "sack") {
      const auto before = words.tellg();
      if (words >> value && std::isdigit(static_cast<unsigned char>(value[0]))) {
        std::istringstream blocks(value);
        for (std::string block; std::getline(blocks, block, ',');) line.sack.push_back(numbers(block));
      } else {
        line.sack_permitted = true;
        words.clear();
        words.seekg(before);
      }
    } else {
      words >> value;
      const auto [first, second] = numbers(value);
      if (word == "ack") line.ack = first;
      if (word == "win") line.window = first;
      if (word == "mss") line.mss = first;
      if (word == "scale") line.scale = first;
      if (word == "merged") line.merged = first;
      if (word == "class") line.traffic_class = first;
      if (word == "ace") line.ace = static_cast<std::uint8_t>(first);
      if (word == "ts") line.timestamps = Timestamps{first, second};
    }
  }
  return line;
}

class Script {
 public:
  Script(const PacketScriptOptions& wanted, std::unique_ptr<ScriptEnd> end)
      : control_(congestion_control(wanted.congestion).value()), end_(std::move(end)) {
    StackOptions options;
    options.ecn = wanted.ecn;
    options.rto.minimum_ns = wanted.rto_min_ns;
    set_test_address(options, 0x0a000001);
    options.secret = {1, 2};
    options.window_max = 8'000'000;
    stack_.emplace(options, PortCapabilities{mac_here, test_mtu(1500), false, 0}, *control_, end_->owner(), now_);
    end_->serve(*stack_);
    // The peer asks for our address, and is known from then on.
    FrameToSend question;
    write_neighbour_frame({false, mac_there, there, {}, here}, mac_there, group_mac(here), question);
    receive(question);
    std::array<FrameToSend, 4> frames;
    static_cast<void>(stack_->transmit(frames, now_));
  }

  // Empty if nothing was sent that no line has taken.
  std::string none() {
    collect();
    return sent_.empty() ? "" : "sent " + describe(sent_.front());
  }

  std::string run(const std::string& command, std::istringstream& words) {
    std::string value;
    const bool takes_number = command == "listen" || command == "connect" || command == "offer" ||
                              command == "received" || command == "acknowledged" || command == "class";
    std::uint64_t number = 0;
    if (takes_number) words >> number;
    if (command == "listen") {
      local_port_ = static_cast<std::uint16_t>(number);
      const bool listens = end_->listen(local_port_);
      settle();
      return listens ? "" : "listen failed";
    }
    if (command == "connect") {
      local_port_ = 1000;
      return end_->connect(local_port_, {there, peer_port}, now_), "";
    }
    if (command == "in") return in(read_line(words)), "";
    if (command == "icmp") return icmp(words), "";
    if (command == "out") return out(read_line(words));
    if (command == "none") return none();
    if (command == "any") {
      collect();
      sent_.clear();
      return "";
    }
    if (command == "wait") {
      words >> value;
      wait(parse_duration_ns(value).value());
      return "";
    }
    settle();
    if (command == "offer") return end_->offer(number, now_), "";
    if (command == "class") return end_->set_traffic_class(static_cast<std::uint8_t>(number), now_), settle(), "";
    if (command == "choose") {
      words >> value;
      return end_->choose(wire::tcp_congestion_named(value), now_), settle(), "";
    }
    if (command == "finish") return end_->finish(now_), "";
    if (command == "abort") return end_->abort(now_), "";
    if (command == "release") return end_->release(now_), "";
    return told(command, number, words);
  }

 private:
  std::string told(const std::string& command, std::uint64_t number, std::istringstream& words) {
    const auto compared = [number](const char* what, std::uint64_t is) {
      return is == number ? "" : fmt::format("{} {}", what, is);
    };
    if (command == "received") return compared("received", end_->received());
    if (command == "acknowledged") return compared("acknowledged", end_->acknowledged());
    if (command == "finished") return end_->finished() ? "" : "not finished";
    if (command == "gone") return end_->gone() ? "" : "not gone";
    if (command != "closed") return "no such command";
    constexpr std::string_view errors[] = {"none", "refused", "reset", "timed_out", "unreachable"};
    std::string wanted = "none";
    words >> wanted;
    const auto closed = end_->closed();
    if (!closed) return "not closed";
    const std::string_view error = errors[static_cast<std::size_t>(*closed)];
    return error == wanted ? "" : fmt::format("closed with {}", error);
  }

  void receive(const FrameToSend& frame, std::uint32_t merged = 0) {
    const std::vector<std::byte> whole = whole_frame(frame);
    stack_->receive({Bytes(whole), true, static_cast<std::uint16_t>(merged)}, now_);
  }

  void in(const Line& line) {
    Segment segment;
    segment.key = {{there, peer_port}, {here, local_port_}};
    segment.flags = 0;
    for (const char flag : line.flags)
      segment.flags |= flag == 'S'   ? flag::syn
                       : flag == 'A' ? flag::ack
                       : flag == 'F' ? flag::fin
                       : flag == 'R' ? flag::rst
                       : flag == 'E' ? flag::ece
                       : flag == 'W' ? flag::cwr
                       : flag == 'X' ? flag::ae
                                     : flag::psh;
    if (line.ace) segment.flags |= ace_flags(*line.ace);
    segment.ecn = line.ecn.value_or(Ecn::not_capable);
    segment.options.ecn_bytes = line.bytes;
    segment.sequence = Sequence(peer_initial) + line.begin.value_or(0);
    segment.acknowledgement = initial_ + line.ack.value_or(0);
    segment.window = static_cast<std::uint16_t>(line.window.value_or(65'535));
    if (line.mss) segment.options.mss = static_cast<std::uint16_t>(*line.mss);
    if (line.scale) segment.options.window_scale = static_cast<std::uint8_t>(*line.scale);
    segment.options.sack_permitted = line.sack_permitted;
    if (line.timestamps)
      segment.options.timestamps = Timestamps{line.timestamps->value, timestamp_base_ + line.timestamps->echo};
    for (const auto& [begin, end] : line.sack)
      segment.options.sack[segment.options.sack_count++] = {initial_ + begin, initial_ + end};
    FrameToSend frame;
    std::vector<std::byte> bytes;
    for (std::uint32_t at = line.begin.value_or(0); at < line.end.value_or(0); ++at)
      bytes.push_back(script_byte(at - 1));
    write_segment_frame(segment, {Bytes(bytes), Bytes()}, 1460, mac_there, mac_here, false, frame);
    frame.segment_bytes = 0;
    receive(frame, line.merged.value_or(0));
  }

  // "Fragmentation needed" or "packet too big", with the beginning of a segment of ours.
  void icmp(std::istringstream& words) {
    std::uint32_t mtu = 0, number = 0;
    words >> mtu >> number;
    const std::size_t header = ip_header_bytes(test_family()), quoted_at = 8 + header;
    const std::uint8_t protocol = tests_ipv6() ? protocol_icmpv6 : protocol_icmp;
    std::vector<std::byte> message(quoted_at + 8);
    message[0] = std::byte{tests_ipv6() ? icmpv6_too_big : icmp_unreachable};
    message[1] = std::byte{tests_ipv6() ? std::uint8_t{0} : icmp_fragmentation_needed};
    if (tests_ipv6())
      store_be32(&message[4], mtu);
    else
      store_be16(&message[6], static_cast<std::uint16_t>(mtu));
    write_ip_header({.source = here, .target = there, .protocol = protocol_tcp}, 8, &message[8]);
    store_be16(&message[quoted_at], local_port_);
    store_be16(&message[quoted_at + 2], peer_port);
    store_be32(&message[quoted_at + 4], (initial_ + number).value());
    Checksum checksum;
    if (tests_ipv6()) checksum.add_pseudo_header(there, here, protocol, static_cast<std::uint32_t>(message.size()));
    checksum.add(message);
    store_be16(&message[2], checksum.finish());
    std::vector<std::byte> frame(ethernet_header_bytes + header);
    write_ethernet_header({mac_here, mac_there, tests_ipv6() ? ethertype_ipv6 : ethertype_ipv4}, frame.data());
    write_ip_header({.source = there, .target = here, .protocol = protocol}, message.size(),
                    &frame[ethernet_header_bytes]);
    frame.insert(frame.end(), message.begin(), message.end());
    stack_->receive({frame, true}, now_);
  }

  void wait(TimeNs duration) {
    const TimeNs until = now_ + duration;
    while (stack_->next_due() <= until) {
      now_ = std::max(now_, stack_->next_due());
      stack_->on_time(now_);
      collect();
    }
    now_ = until;
  }

  // Until all messages between the user and the stack have arrived.
  void settle() {
    end_->react(now_);
    for (TimeNs due; (due = end_->next_due()) != never; end_->react(now_)) {
      now_ = std::max(now_, due);
      while (stack_->next_due() <= now_) stack_->on_time(now_);
    }
  }

  void collect() {
    settle();
    std::array<FrameToSend, 64> frames;
    for (std::size_t count; (count = stack_->transmit(frames, now_)) > 0;)
      for (std::size_t i = 0; i < count; ++i) {
        std::vector<std::byte> frame = whole_frame(frames[i]);
        if (read_neighbour_frame(frame))
          answer_question();
        else
          sent_.push_back(std::move(frame));
      }
  }

  void answer_question() {
    FrameToSend reply;
    write_neighbour_frame({true, mac_there, there, mac_here, here}, mac_there, mac_here, reply);
    receive(reply);
  }

  static bool parse(const std::vector<std::byte>& frame, Segment& segment) {
    IpPacket packet;
    return read_ip(read_ethernet_header(frame.data()).type, Bytes(frame).subspan(ethernet_header_bytes), packet) ==
               Drop::none &&
           read_segment(packet, false, segment) == Drop::none;
  }

  [[nodiscard]] std::string describe(const std::vector<std::byte>& frame) const {
    Segment segment;
    if (!parse(frame, segment)) return "a frame that is no segment";
    std::string text =
        flags_of(segment) + fmt::format(" {}:{} ack {} win {}", segment.sequence - initial_,
                                        segment.sequence - initial_ + static_cast<std::int64_t>(segment.payload.size()),
                                        segment.acknowledgement - Sequence(peer_initial), segment.window);
    for (std::size_t i = 0; i < segment.options.sack_count; ++i)
      text += fmt::format("{}{}:{}", i == 0 ? " sack " : ",", segment.options.sack[i].begin - Sequence(peer_initial),
                          segment.options.sack[i].end - Sequence(peer_initial));
    if (const auto& told = segment.options.ecn_bytes)
      text += fmt::format(" bytes {},{},{}", told->capable_0.value_or(0), told->congested.value_or(0),
                          told->capable_1.value_or(0));
    if (segment.ecn != Ecn::not_capable) text += " ect";
    if (segment.traffic_class != 0) text += fmt::format(" class {}", segment.traffic_class);
    return text;
  }
  static std::string flags_of(const Segment& segment) {
    std::string text;
    if (segment.has(flag::syn)) text += 'S';
    if (segment.has(flag::fin)) text += 'F';
    if (segment.has(flag::rst)) text += 'R';
    if (segment.has(flag::ack)) text += 'A';
    if (segment.has(flag::ece)) text += 'E';
    if (segment.has(flag::cwr)) text += 'W';
    if (segment.has(flag::ae)) text += 'X';
    return text;
  }

  std::string out(const Line& line) {
    collect();
    if (sent_.empty()) return "nothing was sent";
    const std::vector<std::byte> frame = sent_.front();
    sent_.erase(sent_.begin());
    Segment segment;
    if (!parse(frame, segment)) return "a frame that is no segment, or has a wrong checksum";
    if (segment.has(flag::syn)) {
      initial_ = segment.sequence;
      if (segment.options.timestamps) timestamp_base_ = segment.options.timestamps->value;
    }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> sack;
    for (std::size_t i = 0; i < segment.options.sack_count; ++i)
      sack.emplace_back(bytes_between(Sequence(peer_initial), segment.options.sack[i].begin),
                        bytes_between(Sequence(peer_initial), segment.options.sack[i].end));
    const std::uint32_t begin = bytes_between(initial_, segment.sequence);
    const auto is = [](const auto& wanted, const auto& there_is) { return !wanted || *wanted == there_is; };
    Segment without_ace = segment;
    if (line.ace) without_ace.flags &= static_cast<std::uint16_t>(~ace_flags(7));
    const bool same =
        flags_of(without_ace) == line.flags && is(line.ace, ace_of(segment.flags)) &&
        (!line.bytes || line.bytes == segment.options.ecn_bytes) && (!line.no_bytes || !segment.options.ecn_bytes) &&
        (!line.not_capable || segment.ecn == Ecn::not_capable) && is(line.begin, begin) &&
        is(line.end, begin + segment.payload.size()) && (!line.capable || segment.ecn == Ecn::capable_0) &&
        is(line.ack, bytes_between(Sequence(peer_initial), segment.acknowledgement)) &&
        is(line.window, segment.window) && is(line.traffic_class, segment.traffic_class) &&
        is(line.mss, segment.options.mss.value_or(0)) && is(line.scale, segment.options.window_scale.value_or(0)) &&
        (!line.sack_permitted || segment.options.sack_permitted) && (line.sack.empty() || line.sack == sack) &&
        (!line.timestamps || (segment.options.timestamps && segment.options.timestamps->echo == line.timestamps->echo));
    if (!same) return "sent " + describe(frame);
    for (std::size_t i = 0; i < segment.payload.size(); ++i)
      if (segment.payload[i] != script_byte(begin - 1 + i))
        return fmt::format("sent {}, whose byte {} is wrong", describe(frame), i);
    return "";
  }

  std::unique_ptr<const CongestionControl> control_;
  std::unique_ptr<ScriptEnd> end_;
  std::optional<Stack> stack_;
  TimeNs now_ = second_ns;
  std::uint16_t local_port_ = 0;
  Sequence initial_;  // the stack's, once it has said it
  std::uint32_t timestamp_base_ = 0;
  std::vector<std::vector<std::byte>> sent_;
};

std::string run(std::string_view script, const PacketScriptOptions& options, std::unique_ptr<ScriptEnd> end) {
  Script running(options, std::move(end));
  std::istringstream lines{std::string(script)};
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string command;
    if (!(words >> command)) continue;
    const std::string wrong = running.run(command, words);
    if (!wrong.empty()) return fmt::format("line {}: {}: {}", number, line, wrong);
  }
  const std::string left = running.none();
  return left.empty() ? "" : "after the last line: " + left;
}

}  // namespace

std::string run_packet_script(std::string_view script, const PacketScriptOptions& options) {
  const char* const link = std::getenv("OFFPATH_TEST_LINK");
  if (link != nullptr && std::string_view(link) == "late") return run(script, options, make_linked_end());
  const std::string wrong = run(script, options, make_bare_end());
  if (!wrong.empty()) return wrong;
  const std::string wrong_in_rings = run(script, options, make_program_end());
  return wrong_in_rings.empty() ? "" : "in a program's rings: " + wrong_in_rings;
}

}  // namespace offpath::tcp
