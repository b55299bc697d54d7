// Offpath for C++: offpath.h with owners and exceptions. Header only; link with liboffpath.
//
//     offpath::Channel channel("unix:/run/offpath/agent.sock");
//     offpath::Stream particles(channel, "particles", {{"id", "i"}, {"x", "+w:3g"}}, {.rows_max = n});
//     const auto ticket = particles.send({id.data(), x.data()}, n, {"step0", "rank0"});
//     ... compute on something else ...
//     particles.wait_pulled(ticket);                         // id and x are mine again
//     offpath::Frame frame = channel.get("local:/particles", {"step0", "rank0"}, std::chrono::seconds(1));
//
// Every type is move-only and owns one handle; what was made from a channel keeps it alive. Errors are thrown as
// offpath::Error. Times are durations; offpath::forever waits without end.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_OFFPATH_HPP
#define OFFPATH_OFFPATH_HPP

#include <offpath/offpath.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace offpath {

// What a call of the C interface returned: its code and a message that names the field and both values.
class Error : public std::runtime_error {
 public:
  explicit Error(const ofp_error& error)
      : std::runtime_error(error.message), code_(static_cast<ofp_code>(error.code)) {}
  [[nodiscard]] ofp_code code() const noexcept { return code_; }

 private:
  ofp_code code_;
};

using Wait = std::chrono::nanoseconds;
inline constexpr Wait forever{OFP_FOREVER};

// Where an object lies in its pool.
struct Key {
  std::string row;
  std::string column;
};

namespace detail {

template <class Call>
void call(Call&& make) {
  ofp_error error{};
  if (make(&error) != OFP_OK) throw Error(error);
}

struct Release {
  void operator()(ofp_range* range) const noexcept { (void)ofp_range_retire(range, 1'000'000'000, nullptr); }
  void operator()(ofp_segment* segment) const noexcept { ofp_free(segment); }
  void operator()(ofp_stream* stream) const noexcept { (void)ofp_stream_close(stream, 1'000'000'000, nullptr); }
  void operator()(ofp_frame* frame) const noexcept { ofp_frame_release(frame); }
  void operator()(ofp_listing* listing) const noexcept { ofp_listing_free(listing); }
  void operator()(ofp_want* want) const noexcept { ofp_want_free(want); }
  void operator()(ofp_gauges* want) const noexcept { ofp_gauges_close(want); }
  void operator()(ofp_tasks* tasks) const noexcept { ofp_tasks_close(tasks); }
  void operator()(ofp_task* task) const noexcept { ofp_task_free(task); }
};
template <class Handle>
using Owned = std::unique_ptr<Handle, Release>;
using SharedChannel = std::shared_ptr<ofp_channel>;

}  // namespace detail

// An object read from the agent, as read-only bytes. On one machine they are the agent's own pages, leased until this
// is destroyed.
class Frame {
 public:
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(ofp_frame_data(frame_.get())), ofp_frame_bytes(frame_.get())};
  }
  [[nodiscard]] std::uint64_t rows() const noexcept { return ofp_frame_rows(frame_.get()); }
  [[nodiscard]] bool is_arrow() const noexcept { return ofp_frame_is_arrow(frame_.get()) != 0; }  // an Arrow IPC stream
  [[nodiscard]] bool mapped() const noexcept { return ofp_frame_mapped(frame_.get()) != 0; }

 private:
  friend class Channel;
  friend class Want;
  Frame(detail::SharedChannel channel, ofp_frame* frame) : channel_(std::move(channel)), frame_(frame) {}
  detail::SharedChannel channel_;
  detail::Owned<ofp_frame> frame_;
};

// An object that was asked for and may not be there yet. Destroyed before, it is wanted no more.
class Want {
 public:
  // Nothing if it is not over by then. The object is given once; Error::code() is OFP_TIMEOUT when the want's own time is over.
  [[nodiscard]] std::optional<Frame> wait(Wait wait = forever) {
    ofp_frame* frame = nullptr;
    ofp_error error{};
    const int code = ofp_want_wait(want_.get(), wait.count(), &frame, &error);
    if (code == OFP_WOULD_BLOCK) return std::nullopt;
    if (code != OFP_OK) throw Error(error);
    return Frame(channel_, frame);
  }

 private:
  friend class Channel;
  Want(detail::SharedChannel channel, ofp_want* want) : channel_(std::move(channel)), want_(want) {}
  detail::SharedChannel channel_;
  detail::Owned<ofp_want> want_;
};

// What a gauge is; empty texts: none.
struct Gauge {
  std::string name;
  std::string type = "u64";    // or i64, f64
  std::string kind = "gauge";  // or counter
  std::string unit{}, description{};
};

// Values that the agent reads out of this program's memory: each costs a store when it changes.
class Gauges {
 public:
  // One of them. Setting it is one store, from any thread. Valid as long as its Gauges.
  class Slot {
   public:
    void set(std::uint64_t value) const noexcept { ofp_gauge_u64(at_, value); }
    void set(std::int64_t value) const noexcept { ofp_gauge_i64(at_, value); }
    void set(double value) const noexcept { ofp_gauge_f64(at_, value); }

   private:
    friend class Gauges;
    explicit Slot(volatile std::uint64_t* at) : at_(at) {}
    volatile std::uint64_t* at_;
  };
  // From this call on it has a value, at first 0.
  [[nodiscard]] Slot slot(std::uint32_t index) const {
    volatile std::uint64_t* at = ofp_gauge_slot(gauges_.get(), index);
    if (at == nullptr) throw std::out_of_range("there is no gauge " + std::to_string(index));
    return Slot(at);
  }
  void clear(std::uint32_t index) const noexcept { ofp_gauge_clear(gauges_.get(), index); }

 private:
  friend class Channel;
  Gauges(detail::SharedChannel channel, ofp_gauges* gauges) : channel_(std::move(channel)), gauges_(gauges) {}
  detail::SharedChannel channel_;
  detail::Owned<ofp_gauges> gauges_;
};

struct Entry {
  Key key;
  std::uint64_t bytes, rows, sequence;
};

struct ConnectOptions {
  std::string name{};         // what the agent calls this program; empty: the program's own name
  std::string key_file{};     // empty: OFFPATH_KEY_FILE
  std::string tls_ca_file{};  // empty: OFFPATH_TLS_CA_FILE
  Wait wait{std::chrono::seconds(5)};
  std::uint32_t request_ring_slots = 0;
  std::uint64_t staging_bytes_max = 0;
  bool force_staging = false;
};

// One connection with an agent. Usable from several threads; a forked child opens its own.
class Channel {
 public:
  // `address` empty: OFFPATH_AGENT.
  explicit Channel(const std::string& address = {}, const ConnectOptions& options = {}) {
    const auto text = [](const std::string& given) { return given.empty() ? nullptr : given.c_str(); };
    ofp_connect_options c{};
    c.struct_bytes = sizeof c;
    c.name = text(options.name);
    c.key_file = text(options.key_file);
    c.tls_ca_file = text(options.tls_ca_file);
    c.wait_ns = options.wait.count();
    c.request_ring_slots = options.request_ring_slots;
    c.staging_bytes_max = options.staging_bytes_max;
    c.force_staging = options.force_staging ? 1 : 0;
    ofp_channel* channel = nullptr;
    detail::call([&](ofp_error* error) { return ofp_connect(text(address), &c, &channel, error); });
    channel_ = detail::SharedChannel(channel, ofp_close);
  }
  Channel(Channel&&) noexcept = default;
  Channel& operator=(Channel&&) noexcept = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] ofp_channel* get() const noexcept { return channel_.get(); }
  [[nodiscard]] ofp_channel_info info() const {
    ofp_channel_info info{};
    info.struct_bytes = sizeof info;
    detail::call([&](ofp_error* error) { return ofp_channel_info_get(get(), &info, error); });
    return info;
  }
  [[nodiscard]] int event_fd() const noexcept { return ofp_event_fd(get()); }
  void poll() {
    detail::call([&](ofp_error* error) { return ofp_poll(get(), error); });
  }
  struct Probe {
    std::int64_t seen_ns, returned_ns;  // CLOCK_MONOTONIC
  };
  [[nodiscard]] Probe probe(Wait wait = std::chrono::seconds(1)) {
    Probe probe{};
    detail::call([&](ofp_error* error) { return ofp_probe(get(), wait.count(), &probe.seen_ns, &probe.returned_ns, error); });
    return probe;
  }

  // The object, when it is there. Error::code() is OFP_NOT_FOUND (without waiting) or OFP_TIMEOUT.
  [[nodiscard]] Frame get(const std::string& pool, const Key& key, Wait wait = Wait::zero()) {
    ofp_frame* frame = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_pool_get(get(), pool.c_str(), key.row.c_str(), key.column.c_str(), wait.count(), &frame, error);
    });
    return Frame(channel_, frame);
  }
  // `name` is of all together.
  [[nodiscard]] Gauges gauges(const std::string& name, const std::vector<Gauge>& list) {
    std::vector<ofp_gauge> converted;
    for (const Gauge& each : list)
      converted.push_back({each.name.c_str(), each.type.c_str(), each.kind.c_str(), each.unit.c_str(), each.description.c_str()});
    ofp_gauges* gauges = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_gauges_open(get(), name.c_str(), converted.data(), static_cast<std::uint32_t>(converted.size()), &gauges, error);
    });
    return Gauges(channel_, gauges);
  }
  // Asks for it and returns at once. `wait` is how long it may take to come.
  [[nodiscard]] Want want(const std::string& pool, const Key& key, Wait wait = forever) {
    ofp_want* want = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_pool_want(get(), pool.c_str(), key.row.c_str(), key.column.c_str(), wait.count(), &want, error);
    });
    return Want(channel_, want);
  }
  // Objects whose keys match the patterns, in the order of storing.
  [[nodiscard]] std::vector<Entry> list(const std::string& pool, const Key& patterns = {"*", "*"},
                                        Wait wait = std::chrono::seconds(10)) {
    ofp_listing* made = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_pool_list(get(), pool.c_str(), patterns.row.c_str(), patterns.column.c_str(), wait.count(), &made, error);
    });
    const detail::Owned<ofp_listing> listing(made);
    std::vector<Entry> entries;
    for (std::uint64_t i = 0; i < ofp_listing_count(listing.get()); ++i) {
      ofp_entry entry{};
      (void)ofp_listing_entry(listing.get(), i, &entry);
      entries.push_back({{entry.row_key, entry.column_key}, entry.bytes, entry.rows, entry.sequence});
    }
    return entries;
  }
  // Removes matching objects; returns how many.
  std::uint64_t drop(const std::string& pool, const Key& patterns = {"*", "*"}, Wait wait = std::chrono::seconds(10)) {
    std::uint64_t dropped = 0;
    detail::call([&](ofp_error* error) {
      return ofp_pool_drop(get(), pool.c_str(), patterns.row.c_str(), patterns.column.c_str(), wait.count(), &dropped, error);
    });
    return dropped;
  }
  // Writes all objects to `fd` as one Arrow IPC stream; returns the bytes.
  std::uint64_t write(const std::string& pool, int fd, Wait wait = forever) {
    std::uint64_t written = 0;
    detail::call([&](ofp_error* error) { return ofp_pool_write(get(), pool.c_str(), fd, wait.count(), &written, error); });
    return written;
  }

 private:
  friend class Range;
  friend class Segment;
  friend class Exchange;
  friend class Tasks;
  friend class Stream;
  detail::SharedChannel channel_;
};

// Memory of the program announced where it lies: the agent may read it for as long as this lives.
class Range {
 public:
  Range(const Channel& channel, std::span<const std::byte> memory) : channel_(channel.channel_) {
    ofp_range* range = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_range_announce(channel.get(), memory.data(), memory.size(), &range, error);
    });
    range_.reset(range);
  }
  template <class T>
  Range(const Channel& channel, std::span<T> memory) : Range(channel, std::as_bytes(memory)) {}

  // The memory moved or changed its size. What was sent from the old place and is not pulled fails with OFP_STALE.
  template <class T>
  void reannounce(std::span<T> memory) {
    detail::call([&](ofp_error* error) {
      return ofp_range_reannounce(range_.get(), memory.data(), memory.size_bytes(), error);
    });
  }
  // Withdraws it once no posted send uses it; the destructor does so too, and waits a second at most.
  void retire(Wait wait) {
    detail::call([&](ofp_error* error) { return ofp_range_retire(range_.release(), wait.count(), error); });
  }

 private:
  detail::SharedChannel channel_;
  detail::Owned<ofp_range> range_;
};

// Memory from the link: zeroed, page aligned, readable and writable by the agent.
class Segment {
 public:
  Segment(const Channel& channel, std::uint64_t length_bytes) : channel_(channel.channel_) {
    ofp_segment* segment = nullptr;
    detail::call([&](ofp_error* error) { return ofp_alloc(channel.get(), length_bytes, &segment, error); });
    segment_.reset(segment);
  }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {static_cast<std::byte*>(ofp_segment_data(segment_.get())), ofp_segment_bytes(segment_.get())};
  }
  template <class T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {static_cast<T*>(ofp_segment_data(segment_.get())), ofp_segment_bytes(segment_.get()) / sizeof(T)};
  }

 private:
  detail::SharedChannel channel_;
  detail::Owned<ofp_segment> segment_;
};

// A column of plain memory, as of ofp_column.
struct Column {
  std::string name;
  std::string format;  // "i" int32, "l" int64, "f" "g" floats, "+w:3g" three doubles a row
  std::uint32_t stride_bytes = 0;
};

struct StreamOptions {
  std::string pool{};                     // empty: "local:/" and the stream's name
  std::string destination = "ipc-page";
  std::uint64_t rows_max = 0;             // of the largest batch
  std::uint64_t keep = 0;                 // frames the pool keeps; 0: all
  std::uint32_t ranks = 0, rank = 0;      // of a parallel program
  std::string compression = "none";       // or "lz4" or "zstd", of frames that are ipc or ipc-page
};

enum class Send : std::uint32_t {
  none = 0,
  wait = OFP_SEND_WAIT,
  snapshot = OFP_SEND_SNAPSHOT,
  announce = OFP_SEND_ANNOUNCE,
};
[[nodiscard]] constexpr Send operator|(Send a, Send b) noexcept {
  return static_cast<Send>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}

using Ticket = std::uint64_t;

class Stream {
 public:
  // What sends do unless told otherwise: wait for room and credit, announce what is not announced.
  static constexpr Send usual = Send::wait | Send::announce;

  Stream(const Channel& channel, const std::string& name, const std::vector<Column>& columns, const StreamOptions& options)
      : channel_(channel.channel_) {
    std::vector<ofp_column> list;
    for (const Column& column : columns) list.push_back({column.name.c_str(), column.format.c_str(), column.stride_bytes});
    const ofp_stream_options c = converted(options);
    ofp_stream* stream = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_stream_open_columns(channel.get(), name.c_str(), list.data(), static_cast<std::uint32_t>(list.size()), &c,
                                     &stream, error);
    });
    stream_.reset(stream);
  }
  // Any schema, by the Arrow C data interface; not consumed.
  Stream(const Channel& channel, const std::string& name, const ArrowSchema& schema, const StreamOptions& options)
      : channel_(channel.channel_) {
    const ofp_stream_options c = converted(options);
    ofp_stream* stream = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_stream_open(channel.get(), name.c_str(), &schema, &c, &stream, error);
    });
    stream_.reset(stream);
  }

  [[nodiscard]] ofp_stream* get() const noexcept { return stream_.get(); }

  // One pointer for each column, at its first value.
  Ticket send(std::span<const void* const> columns, std::uint64_t rows, const Key& key, Send flags = usual) {
    Ticket ticket = 0;
    detail::call([&](ofp_error* error) {
      return ofp_send_columns(get(), columns.data(), rows, key.row.c_str(), key.column.c_str(),
                              static_cast<std::uint32_t>(flags), &ticket, error);
    });
    return ticket;
  }
  Ticket send(std::initializer_list<const void*> columns, std::uint64_t rows, const Key& key, Send flags = usual) {
    return send(std::span<const void* const>(columns.begin(), columns.size()), rows, key, flags);
  }
  // A record batch as a struct array; not consumed, to be kept alive until pulled.
  Ticket send(const ArrowArray& batch, const Key& key, Send flags = usual) {
    Ticket ticket = 0;
    detail::call([&](ofp_error* error) {
      return ofp_send(get(), &batch, key.row.c_str(), key.column.c_str(), static_cast<std::uint32_t>(flags), &ticket, error);
    });
    return ticket;
  }
  // Gathers pieces into a new object of `object_bytes`, or into one that is there (`mode` OFP_MOVE_UPDATE).
  Ticket move(std::span<const ofp_piece> pieces, std::uint64_t object_bytes, const Key& key,
              std::uint32_t mode = OFP_MOVE_CREATE, Send flags = usual) {
    Ticket ticket = 0;
    detail::call([&](ofp_error* error) {
      return ofp_move(get(), pieces.data(), static_cast<std::uint32_t>(pieces.size()), object_bytes, key.row.c_str(),
                      key.column.c_str(), mode, static_cast<std::uint32_t>(flags), &ticket, error);
    });
    return ticket;
  }
  Ticket step_end(const std::string& row) {
    Ticket ticket = 0;
    detail::call([&](ofp_error* error) { return ofp_step_end(get(), row.c_str(), &ticket, error); });
    return ticket;
  }

  void wait_pulled(Ticket ticket, Wait wait = forever) {
    detail::call([&](ofp_error* error) { return ofp_wait_pulled(get(), ticket, wait.count(), error); });
  }
  void wait_stored(Ticket ticket, Wait wait = forever) {
    detail::call([&](ofp_error* error) { return ofp_wait_stored(get(), ticket, wait.count(), error); });
  }
  [[nodiscard]] Ticket pulled() const noexcept { return ofp_pulled(get()); }
  [[nodiscard]] Ticket stored() const noexcept { return ofp_stored(get()); }
  [[nodiscard]] std::uint64_t credit_bytes() const noexcept { return ofp_credit_bytes(get()); }
  // Ends the stream and says how that went; the destructor ends it in silence.
  void close(Wait wait = std::chrono::seconds(1)) {
    detail::call([&](ofp_error* error) { return ofp_stream_close(stream_.release(), wait.count(), error); });
  }

 private:
  static ofp_stream_options converted(const StreamOptions& options) {
    ofp_stream_options c{};
    c.struct_bytes = sizeof c;
    c.pool = options.pool.empty() ? nullptr : options.pool.c_str();
    c.destination = options.destination.c_str();
    c.rows_max = options.rows_max;
    c.keep = options.keep;
    c.ranks = options.ranks;
    c.rank = options.rank;
    c.compression = options.compression.c_str();
    return c;
  }
  detail::SharedChannel channel_;
  detail::Owned<ofp_stream> stream_;
};

// What an exchange knew of its members after one round. Records live as long as the view.
class View {
 public:
  explicit View(ofp_view* view) : view_(view) {
    info_.struct_bytes = sizeof info_;
    detail::call([&](ofp_error* error) { return ofp_view_info_get(view, &info_, error); });
    borrowed_ = false;
  }
  // One that somebody else frees, as of ofp_on_view.
  explicit View(const ofp_view* view) : view_(const_cast<ofp_view*>(view)), borrowed_(true) {
    info_.struct_bytes = sizeof info_;
    detail::call([&](ofp_error* error) { return ofp_view_info_get(view, &info_, error); });
  }
  View(View&& other) noexcept : view_(std::exchange(other.view_, nullptr)), borrowed_(other.borrowed_), info_(other.info_) {}
  View& operator=(View&&) = delete;
  ~View() {
    if (!borrowed_) ofp_view_free(view_);
  }

  [[nodiscard]] const ofp_view_info& info() const noexcept { return info_; }
  [[nodiscard]] bool complete() const noexcept { return info_.present == info_.expected; }
  [[nodiscard]] ofp_view_entry entry(std::uint32_t index) const {
    ofp_view_entry entry{};
    if (ofp_view_entry_get(view_, index, &entry) != OFP_OK) throw std::out_of_range("the view has no such entry");
    return entry;
  }
  // The record as a plain struct; nothing if there is none, or it has another size.
  template <class Record>
  [[nodiscard]] std::optional<Record> record(std::uint32_t index) const {
    static_assert(std::is_trivially_copyable_v<Record>);
    const ofp_view_entry found = entry(index);
    if (found.has_value == 0 || found.record_bytes != sizeof(Record)) return std::nullopt;
    Record record;
    std::memcpy(&record, found.record, sizeof record);
    return record;
  }
  [[nodiscard]] ofp_view_figure figure(std::uint32_t index) const {
    ofp_view_figure figure{};
    if (ofp_view_figure_get(view_, index, &figure) != OFP_OK) throw std::out_of_range("the view has no such figure");
    return figure;
  }

 private:
  ofp_view* view_;
  bool borrowed_ = true;
  ofp_view_info info_{};
};

struct ExchangeOptions {
  bool publish = false;
  std::vector<ofp_field> fields{};
  std::uint64_t record_bytes_max = 0, view_bytes_max = 0;
};

// This program's part in an exchange of agents (offpath.h).
class Exchange {
 public:
  Exchange(const Channel& channel, const std::string& name, const ExchangeOptions& options = {}) : channel_(channel.channel_) {
    ofp_exchange_options c{};
    c.struct_bytes = sizeof c;
    c.publish = options.publish ? 1 : 0;
    c.fields = options.fields.data();
    c.fields_count = static_cast<std::uint32_t>(options.fields.size());
    c.record_bytes_max = options.record_bytes_max;
    c.view_bytes_max = options.view_bytes_max;
    detail::call([&](ofp_error* error) { return ofp_exchange_open(channel.get(), name.c_str(), &c, &exchange_, error); });
  }
  Exchange(Exchange&& other) noexcept : channel_(std::move(other.channel_)), exchange_(std::exchange(other.exchange_, nullptr)) {}
  Exchange& operator=(Exchange&&) = delete;
  ~Exchange() { ofp_exchange_close(exchange_); }

  [[nodiscard]] ofp_exchange* get() const noexcept { return exchange_; }
  [[nodiscard]] ofp_exchange_info info() const {
    ofp_exchange_info info{};
    info.struct_bytes = sizeof info;
    detail::call([&](ofp_error* error) { return ofp_exchange_info_get(exchange_, &info, error); });
    return info;
  }
  [[nodiscard]] std::string member(std::uint32_t index) const {
    const char* name = ofp_exchange_member(exchange_, index);
    return name != nullptr ? name : "";
  }
  template <class Record>
  void publish(const Record& record) {
    static_assert(std::is_trivially_copyable_v<Record>);
    publish(&record, sizeof record);
  }
  void publish(const void* record, std::uint64_t bytes) {
    detail::call([&](ofp_error* error) { return ofp_exchange_publish(exchange_, record, bytes, error); });
  }
  [[nodiscard]] View view(Wait wait = forever) {
    ofp_view* view = nullptr;
    detail::call([&](ofp_error* error) { return ofp_exchange_view(exchange_, wait.count(), &view, error); });
    return View(view);
  }
  // Whether this agent leads, and may grant now.
  bool grant(std::span<const std::uint32_t> members, std::span<const std::uint64_t> amounts) {
    std::uint32_t may_grant = 0;
    detail::call([&](ofp_error* error) {
      return ofp_exchange_grant(exchange_, members.data(), amounts.data(), static_cast<std::uint32_t>(std::min(members.size(), amounts.size())), &may_grant, error);
    });
    return may_grant != 0;
  }
  struct Granted {
    std::uint64_t amount;
    Wait left;
  };
  [[nodiscard]] Granted granted() const {
    std::uint64_t amount = 0;
    std::int64_t left_ns = 0;
    detail::call([&](ofp_error* error) { return ofp_exchange_granted(exchange_, &amount, &left_ns, error); });
    return {amount, Wait(left_ns)};
  }

 private:
  detail::SharedChannel channel_;
  ofp_exchange* exchange_ = nullptr;
};

// An input of a task: bytes that may not change until it is pulled. With a version it stays on the agent (offpath.h).
struct TaskInput {
  std::string name;
  std::span<const std::byte> data;
  std::uint64_t version = 0, changed_from = 0, changed_at = 0, changed_bytes = 0;
  std::uint64_t bytes = 0;  // where `data` is empty, and it is to be on the agent already
};
// An output: bytes of an offpath::Segment, or room for so many that stay on the agent.
struct TaskOutput {
  std::string name;
  std::span<std::byte> data;
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;  // where `data` is empty
};
template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(const T* values, std::size_t count) noexcept {
  return std::as_bytes(std::span(values, count));
}
template <class T>
[[nodiscard]] std::span<std::byte> writable_bytes_of(T* values, std::size_t count) noexcept {
  return std::as_writable_bytes(std::span(values, count));
}

// A task that was submitted. Destroyed before it is over, it is cancelled.
class Task {
 public:
  // False: it goes on. Throws what it has failed with.
  bool wait(Wait wait = forever) { return is_over(ofp_task_wait, wait); }
  bool wait_pulled(Wait wait = forever) { return is_over(ofp_task_wait_pulled, wait); }  // its inputs are this program's again
  void cancel() {
    detail::call([&](ofp_error* error) { return ofp_task_cancel(task_.get(), error); });
  }
  [[nodiscard]] ofp_task_info info() const {
    ofp_task_info info{};
    info.struct_bytes = sizeof info;
    detail::call([&](ofp_error* error) { return ofp_task_info_get(task_.get(), &info, error); });
    return info;
  }
  [[nodiscard]] std::uint64_t output_bytes(std::uint32_t index) const {
    std::uint64_t bytes = 0;
    detail::call([&](ofp_error* error) { return ofp_task_output_bytes(task_.get(), index, &bytes, error); });
    return bytes;
  }
  [[nodiscard]] ofp_task* get() const noexcept { return task_.get(); }

 private:
  friend class Tasks;
  Task(detail::SharedChannel channel, ofp_task* task) : channel_(std::move(channel)), task_(task) {}
  bool is_over(int (*call)(ofp_task*, std::int64_t, ofp_error*), Wait wait) {
    ofp_error error{};
    const int code = call(task_.get(), wait.count(), &error);
    if (code != OFP_OK && code != OFP_WOULD_BLOCK) throw Error(error);
    return code == OFP_OK;
  }
  detail::SharedChannel channel_;
  detail::Owned<ofp_task> task_;
};

struct TaskRequest {
  std::string function;  // "plug-in/function"
  std::vector<TaskInput> inputs{};
  std::vector<TaskOutput> outputs{};
  std::span<const std::byte> arguments{};
  std::vector<const Task*> after{};
  Wait wait{0};  // for all of it; 0: the plug-in's time
};

struct TasksOptions {
  std::uint32_t lane = 0, lanes = 0;  // lanes 0: any order, any worker
  std::uint32_t tasks_max = 0;
  std::vector<std::pair<std::string, std::string>> plugins{};  // name and path: whose functions this program can run itself
};

// A session of tasks (offpath.h).
class Tasks {
 public:
  explicit Tasks(const Channel& channel, const TasksOptions& options = {}) : channel_(channel.channel_) { open(options); }
  // Without an agent: this program runs the functions itself, when it waits.
  explicit Tasks(const TasksOptions& options) { open(options); }

  [[nodiscard]] Task submit(const TaskRequest& request) {
    ofp_task* task = nullptr;
    composed(request, [&](const ofp_task_request& c) {
      detail::call([&](ofp_error* error) { return ofp_task_submit(tasks_.get(), &c, &task, error); });
    });
    return Task(channel_, task);
  }
  // Submits and waits; if the agent dies, this program runs the function (TasksOptions::plugins).
  ofp_task_info run(const TaskRequest& request) {
    ofp_task_info info{};
    info.struct_bytes = sizeof info;
    composed(request, [&](const ofp_task_request& c) {
      detail::call([&](ofp_error* error) { return ofp_task_run(tasks_.get(), &c, &info, error); });
    });
    return info;
  }
  [[nodiscard]] ofp_tasks* get() const noexcept { return tasks_.get(); }

 private:
  void open(const TasksOptions& options) {
    std::vector<ofp_task_plugin> plugins;
    for (const auto& [name, path] : options.plugins) plugins.push_back({name.c_str(), path.c_str()});
    ofp_tasks_options c{};
    c.struct_bytes = sizeof c;
    c.lane = options.lane;
    c.lanes = options.lanes;
    c.tasks_max = options.tasks_max;
    c.plugins = plugins.data();
    c.plugins_count = static_cast<std::uint32_t>(plugins.size());
    ofp_tasks* tasks = nullptr;
    detail::call([&](ofp_error* error) { return ofp_tasks_open(channel_.get(), &c, &tasks, error); });
    tasks_.reset(tasks);
  }
  template <class Use>
  static void composed(const TaskRequest& request, Use use) {
    std::vector<ofp_task_input> inputs;
    for (const TaskInput& each : request.inputs)
      inputs.push_back({each.name.c_str(), each.data.data(), each.data.empty() ? each.bytes : each.data.size(), each.version, each.changed_from,
                        each.changed_at, each.changed_bytes});
    std::vector<ofp_task_output> outputs;
    for (const TaskOutput& each : request.outputs)
      outputs.push_back({each.name.c_str(), each.data.data(), each.data.empty() ? each.bytes : each.data.size(), each.version});
    std::vector<ofp_task*> after;
    for (const Task* each : request.after) after.push_back(each->get());
    ofp_task_request c{};
    c.struct_bytes = sizeof c;
    c.function = request.function.c_str();
    c.arguments = request.arguments.data();
    c.arguments_bytes = request.arguments.size();
    c.inputs = inputs.data();
    c.outputs = outputs.data();
    c.inputs_count = static_cast<std::uint32_t>(inputs.size());
    c.outputs_count = static_cast<std::uint32_t>(outputs.size());
    c.after = after.data();
    c.after_count = static_cast<std::uint32_t>(after.size());
    c.wait_ns = request.wait.count();
    use(c);
  }

  detail::SharedChannel channel_;
  detail::Owned<ofp_tasks> tasks_;
};

}  // namespace offpath

#endif  // OFFPATH_OFFPATH_HPP
