// A program's area on another machine: the agent's copy of it, and the transfers that keep both equal.
//
//   program's area              link                          this copy
//   commands, payload sent  --> reads of commands, payload -->  commands; then TcpService takes them
//   payload received, events <-- one chain of writes       <--  payload and events of the stack and TcpService
//
// TcpService works on the copy as on any program's area. Bytes to send are fetched before the command that offers them
// is published here, and stay here until they are acknowledged; those of a small send come within the commands. Bytes
// received are written to the program's ring, then the events that report them, then the events' position, in one
// chain: writes become visible in order.
//
// One read brings the position of the program's commands and the slots that it probably covers; a stamp in each command
// shows whether the slot was complete (wire/areas/tcp_area.h). look_timing.h says when such a look is due. Where none
// is, the flag `asleep` is written to the program's area, and one more look confirms that no command was missed: from
// then on nothing is read until the program wakes the agent (look()).
//
// A state machine without a link: transfers() returns the reads and writes to do, and done() takes those that have
// ended. Everything that the program wrote is copied once and checked here as far as it names memory; TcpService checks
// the rest.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "tcp/area/look_timing.h"
#include "wire/areas/tcp_area.h"

namespace offpath::tcp {

struct AreaMirrorCounters {
  std::uint64_t looks = 0, fetches = 0, chains = 0;   // reads of commands; reads of payload; chains of writes
  std::uint64_t fetched_bytes = 0, pushed_bytes = 0;  // payload
  std::uint64_t read_bytes = 0, written_bytes = 0;    // all that crosses the link
  std::uint64_t wakes = 0;

  AreaMirrorCounters& operator+=(const AreaMirrorCounters& other) noexcept {
    looks += other.looks;
    fetches += other.fetches;
    chains += other.chains;
    fetched_bytes += other.fetched_bytes;
    pushed_bytes += other.pushed_bytes;
    read_bytes += other.read_bytes;
    written_bytes += other.written_bytes;
    wakes += other.wakes;
    return *this;
  }
};

class AreaMirror {
 public:
  struct Piece {
    std::uint64_t offset;  // in the program's area
    std::byte* memory;     // the agent's
    std::uint64_t length;
  };
  struct Transfer {
    std::uint64_t token;
    bool writes;
    std::vector<Piece> pieces;
  };

  static constexpr std::size_t batches_max = 32, chains_max = 8;
  static constexpr std::uint32_t look_slots = 16, look_slots_max = 256;
  // Bytes of payload, unless one event has more. Further bytes leave in the next chain at once: several are on their
  // way, and the program reads the first while the link carries the others.
  static constexpr std::uint64_t chain_bytes_max = 128 << 10;
  // Of payload that is read at a time. As much is under way as keeps the link busy, within these bounds: a look waits
  // behind that, and shows the offers of the program until then.
  static constexpr std::uint64_t fetch_bytes = 64 << 10, fetching_bytes_min = 4 * fetch_bytes,
                                 fetching_bytes_max = 16 * fetch_bytes;
  // The longest time of an answer, in times of a read: a chain until it has ended, half for the wake of the program;
  // one and a half for the wake of the agent, which its relay posts and the agent reads; a look.
  static constexpr TimeNs reads_of_an_answer = 4;

  // `memory` has the layout's length, is zeroed, and stays until every transfer has ended.
  AreaMirror(const wire::TcpAreaLayout& layout, MutableBytes memory);

  // The program has woken the agent.
  void look(TimeNs now);
  // The program has ended, and its area stays a while: brings the commands that it gave before, and how far it has read
  // each stream.
  void finish() noexcept { finishing_ = true; }
  [[nodiscard]] bool finished() const noexcept { return last_ == Last::read && batches_.empty(); }
  // A process that sleeps is to be woken, after the writes for it.
  void wake(std::uint32_t process);
  // After TcpService's round: begins transfers. True: it has begun some.
  bool poll(TimeNs now);
  [[nodiscard]] std::vector<Transfer> transfers() noexcept { return std::exchange(transfers_, {}); }
  // A transfer has succeeded. A failure: the program wrote invalid bytes, and is to be ended.
  [[nodiscard]] Status done(std::uint64_t token, TimeNs now);
  // Whether the other machine is to be woken now.
  [[nodiscard]] bool take_wake() noexcept { return std::exchange(wake_due_, false); }

  // Nothing is to be done before a transfer ends, TcpService writes, or the program wakes the agent.
  [[nodiscard]] bool may_sleep() const noexcept {
    return (finishing_ ? last_ == Last::read : watch_ == Watch::armed) && !looking_ && batches_.empty();
  }
  // When poll() has work although no transfer ends, TcpService writes nothing, and the program sleeps.
  [[nodiscard]] TimeNs next_deadline() const noexcept;
  [[nodiscard]] std::size_t outstanding() const noexcept { return outstanding_; }
  // How long the link alone takes from an event of the agent to the program's answer to it (ReadTime); 0: not measured
  // yet. Payload that waits for the link is left out, because a larger ring would only make it wait longer.
  [[nodiscard]] TimeNs answer_ns() const noexcept { return reads_of_an_answer * read_time_.ns(); }
  [[nodiscard]] const AreaMirrorCounters& counters() const noexcept { return counters_; }

 private:
  // watching: looks follow each other. arming: the flag is being written. confirming: one more look.
  enum class Watch { watching, arming, confirming, armed };
  // While it finishes: the last commands are looked for; positions are to be read, are being read, were read.
  enum class Last { looking, to_read, reading, read };
  // From `at` on, `size` bytes or slots.
  struct Ring {
    std::uint64_t at = 0, size = 0, unit_bytes = 1;
  };
  // From one ring of a direction to another one (TcpCommandKind::replace).
  struct Step {
    std::uint64_t from = 0;  // bytes from there on are in the other ring
    Ring before{}, next{};   // next: the program has named it, and has no answer
  };
  struct Flow {
    std::array<Ring, 2> rings{};            // by direction; of no bytes: none are known
    std::uint64_t fetched = 0, pushed = 0;  // positions of the two streams
    std::array<Step, 2> steps{};
    bool grown = false;    // another ring has been named since it began
    bool open = false;     // the program was told of the connection: TcpService has charged it for its rings
    bool leaving = false;  // its end is on the way to the program; its memory is given back
  };
  struct Batch {
    std::vector<wire::TcpCommand> commands;
    std::deque<Piece> payload{};           // of these, still to be read
    std::vector<std::uint64_t> fetches{};  // tokens of the reads under way

    [[nodiscard]] bool is_there() const noexcept { return payload.empty() && fetches.empty(); }
  };
  // Bytes that have come within commands. Only an offer that names just these uses them.
  struct Carried {
    std::uint32_t handle = wire::tcp_no_handle, count = 0;
    std::uint64_t end = 0;
    std::array<std::byte, wire::tcp_small_send> bytes{};
  };
  struct Chain {
    std::array<std::uint64_t, 3> words{};  // sources of the writes: events posted, commands taken, asleep
    std::vector<std::uint64_t> woken{};
    std::vector<std::uint32_t> gone{};
    std::vector<Ring> left{};  // larger rings of flows that are gone
  };

  [[nodiscard]] std::uint64_t word(std::uint64_t offset) const noexcept;
  void set_word(std::uint64_t offset, std::uint64_t value) noexcept;
  [[nodiscard]] std::uint64_t begin(bool writes, std::vector<Piece> pieces);
  void begin_look(TimeNs now);
  void begin_last(TimeNs now);
  [[nodiscard]] Status on_look(TimeNs now);
  [[nodiscard]] Status take(const wire::TcpCommand& command, std::deque<Piece>& payload);
  void take_sleep(const wire::TcpCommand& command);
  [[nodiscard]] Status keep(const wire::TcpOffer& entry);
  void fetch(Flow& flow, std::uint64_t position, std::deque<Piece>& payload);
  void begin_fetches();
  void begin_fetch(Batch& batch);
  void end_fetch(std::uint64_t token);
  void measure_look(TimeNs took, TimeNs now) noexcept;
  // Much payload is still to come: the next look has to be under way, or the link would stand still behind that.
  [[nodiscard]] bool is_streaming() const noexcept { return unfetched_bytes_ >= fetch_bytes; }
  [[nodiscard]] bool may_look() const noexcept {
    return watch_ == Watch::watching && !looking_ && batches_.size() < batches_max;
  }
  void publish();
  [[nodiscard]] bool has_to_write() const noexcept;
  void begin_chain(TimeNs now, bool arms = false);
  [[nodiscard]] bool note_events(bool acknowledgements, TimeNs now);
  std::uint64_t add_event(const wire::TcpEvent& event, Chain& chain, std::vector<Piece>& pieces);
  void add_ring(auto& pieces, Ring ring, std::uint64_t from, std::uint64_t to);
  [[nodiscard]] Status take_ring(const wire::TcpCommand& command);
  void take_rings(Flow& flow, const wire::TcpEvent& event);
  [[nodiscard]] std::uint64_t add_received(const Flow& flow, std::uint64_t to, std::vector<Piece>& pieces);
  void drop_left(const Ring& next) noexcept;
  void drop(const Ring& ring, std::uint64_t touched) noexcept;
  void on_written(Chain chain, bool arms, TimeNs now);
  void give_back(Flow& flow);

  wire::TcpAreaLayout layout_;
  MutableBytes memory_;
  std::vector<Flow> flows_;  // by handle

  std::vector<std::byte> looked_;  // the program's line, then slots
  bool looking_ = false, look_again_ = false, confirms_later_ = false;
  bool finishing_ = false, looks_last_ = false;  // the look under way began after finish()
  Last last_ = Last::looking;
  std::uint64_t positions_token_ = 0;
  std::uint64_t look_token_ = 0, look_count_ = 0;
  TimeNs look_began_ = 0;
  ReadTime read_time_;
  bool look_is_alone_ = false;
  std::uint64_t tail_ = 0;       // of the program's commands, as last seen
  std::uint64_t fetched_ = 0;    // commands taken from looks
  std::uint64_t published_ = 0;  // of these, commands in this copy's ring
  std::deque<Batch> batches_;
  std::map<std::uint64_t, std::uint64_t> fetches_;  // under way: bytes, by token
  std::uint64_t unfetched_bytes_ = 0;               // of payload that commands in batches_ offer
  std::uint64_t fetching_bytes_ = 0;                // of these, under way
  std::uint64_t fetching_most_ = fetching_bytes_min;
  bool fetches_waited_ = false;  // for others to end, since the last look
  Carried carried_;

  std::map<std::uint64_t, Chain> chains_;  // under way, by token; they may complete in any order
  std::uint64_t arming_token_ = 0;         // of the last one that writes the flag
  std::uint64_t events_pushed_ = 0, taken_pushed_ = 0;
  std::map<std::uint32_t, std::uint64_t> woken_;  // how often each process was woken
  std::vector<std::uint32_t> to_wake_;
  bool tells_room_ = false;  // a process waits for room in the ring of commands
  bool introduced_ = false;  // the agent's addresses were written

  Watch watch_ = Watch::watching;
  std::uint64_t flag_ = 0;  // in the program's area, or on its way there: 1, the agent sleeps; 2, and waits for room
  LookTiming timing_;
  bool wake_due_ = false;
  std::vector<Transfer> transfers_;
  std::uint64_t next_token_ = 1;
  std::size_t outstanding_ = 0;
  AreaMirrorCounters counters_;
};

}  // namespace offpath::tcp
