// A stream in the host program: the form of a batch, with all values that can be computed in advance, so that a send
// only multiplies by its rows.
//
// Read this first in src/host/send, then send.cc (the walk of a send), known_columns.h (arrays that were sent before)
// and staging.h (arrays that are copied).
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "frame/flatten.h"
#include "frame/layout.h"
#include "frame/schema.h"
#include "host/connection.h"
#include "host/send/known_columns.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/stream_messages.h"
#include "wire/region.h"

namespace offpath::host {

inline constexpr TimeNs silent_ns = second_ns;  // a longer wait of a stream logs its reason

// The form in memory of a column of fixed width and without nulls, before a send says where it lies
// (frame::PlainColumn). Bytes of `rows` rows follow from this alone.
struct ColumnShape {
  std::string name;
  std::uint64_t row_bytes = 0;  // of a row's values side by side; unused for booleans
  std::uint64_t values = 1;     // of one row: more (or less) in a fixed-size list
  std::uint32_t value_bytes = 0;
  bool boolean = false;  // a bit each; a byte each where there is a stride

  // The distance between the first byte of the first row and the last byte of the last one.
  [[nodiscard]] std::uint64_t span_bytes(std::uint64_t rows, std::uint32_t stride) const noexcept {
    if (rows == 0) return 0;
    if (stride != 0) return (rows - 1) * stride + (boolean ? 1 : row_bytes);
    return dense_bytes(rows);
  }
  [[nodiscard]] std::uint64_t dense_bytes(std::uint64_t rows) const noexcept {
    return boolean ? bitmap_bytes(rows * values) : rows * row_bytes;
  }
};

// The arguments of ofp_send_columns and ofp_send.
struct SendRequest {
  std::uint64_t rows = 0;
  std::string_view row_key, column_key;
  std::uint32_t flags = 0;
  TimeNs deadline = 0;  // until then it waits for room and credit; 0: it does not wait
};

struct MoveRequest {
  std::span<const ofp_piece> pieces;
  std::uint64_t object_bytes = 0;
  std::string_view row_key, column_key;
  bool update = false;
  std::uint32_t flags = 0;
  TimeNs deadline = 0;  // as above
};

class Stream {
 public:
  // `schema` may be empty for destinations that take bytes as they are: then there is one column of bytes.
  [[nodiscard]] static Result<std::unique_ptr<Stream>> open(ConnectionPtr connection, std::string_view name,
                                                            frame::Schema schema,
                                                            std::span<const std::uint32_t> strides,
                                                            const ofp_stream_options* options);
  [[nodiscard]] Status close(std::int64_t wait_ns);
  // Later batches may have so many rows. Returns when the agent has agreed; less than before changes nothing.
  [[nodiscard]] Status grow(std::uint64_t rows_max, std::int64_t wait_ns);

  // `strides`: one for each column, or empty: those of the opening.
  [[nodiscard]] Result<std::uint64_t> send_columns(const void* const* data, std::span<const std::uint32_t> strides,
                                                   const SendRequest& request);
  [[nodiscard]] Result<std::uint64_t> send_batch(const ArrowArray& batch, const SendRequest& request);
  [[nodiscard]] Result<std::uint64_t> move(const MoveRequest& request);
  [[nodiscard]] Result<std::uint64_t> step_end(std::string_view row_key);

  [[nodiscard]] Status wait_pulled(std::uint64_t ticket, std::int64_t wait_ns);
  // A wait of more than a second logs its reason.
  [[nodiscard]] Status wait_stored(std::uint64_t ticket, std::int64_t wait_ns);
  [[nodiscard]] std::uint64_t pulled() const noexcept;
  [[nodiscard]] std::uint64_t stored() const noexcept { return connection_->end.stored(number_); }
  [[nodiscard]] std::uint64_t credit_bytes() const { return connection_->end.credit_left(number_); }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] std::size_t columns() const noexcept { return columns_.size(); }
  [[nodiscard]] Connection& connection() const noexcept { return *connection_; }

 private:
  // Memory as a send names it: lying where it lies, or to be copied.
  struct Source {
    const void* address = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t stride_bytes = 0;
    std::uint32_t value_bytes = 0;  // with a stride
    std::uint64_t values = 0;       // with a stride
    std::uint8_t bit_offset = 0;
  };
  using Posting = HostEnd::Posting;

  Stream() = default;
  [[nodiscard]] Status prepare(frame::Schema schema, std::span<const std::uint32_t> strides);
  [[nodiscard]] Status prepare_columns(const frame::Schema& schema, std::span<const std::uint32_t> strides);
  [[nodiscard]] bool bytes_as_they_are() const noexcept {
    return destination_ == wire::Destination::native || destination_ == wire::Destination::serialised;
  }
  [[nodiscard]] static Status check_rows(const ColumnShape& column, std::uint64_t rows_max);
  void tell_why_waits(std::uint64_t ticket, TimeNs until);
  [[nodiscard]] Status check(const SendRequest& request) const;
  [[nodiscard]] Status check_strides(std::span<const std::uint32_t> strides) const;
  [[nodiscard]] bool copies(std::uint32_t flags) const noexcept {
    return (flags & OFP_SEND_SNAPSHOT) != 0 || connection_->end.traits().staged;
  }

  // Ranges that one send announces. However the send ends, the connection remembers them, and ends them later.
  // Declared before the lock is taken.
  class Announced {
   public:
    explicit Announced(Connection& connection) : connection_(connection) {}
    Announced(const Announced&) = delete;
    ~Announced() {
      for (const HostEnd::RangeName& range : ranges_) connection_.remember(range);
    }
    void add(HostEnd::RangeName range) { ranges_.push_back(range); }

   private:
    Connection& connection_;
    std::vector<HostEnd::RangeName> ranges_;
  };

  [[nodiscard]] Result<std::uint64_t> post_columns(const void* const* data, const std::uint32_t* strides,
                                                   const SendRequest& request);
  // A request that names columns. Its spans lie in the scratch memory below, or in known_: until the next send.
  struct Composed {
    Bytes payload{};
    std::span<const HostEnd::RangeName> uses{};
    std::uint64_t charge = 0, span_bytes = 0;  // of the columns, without keys
  };
  [[nodiscard]] Result<Composed> name_columns(Posting& posting, const void* const* data, const std::uint32_t* strides,
                                              const SendRequest& request, std::uint32_t set, std::size_t& unannounced);
  [[nodiscard]] Result<Composed> name_announcing(Posting& posting, const void* const* data,
                                                 const std::uint32_t* strides, const SendRequest& request,
                                                 std::uint32_t set, Announced& announced);
  [[nodiscard]] Bytes compose(const SendRequest& request, std::span<const wire::BufferRef> names, std::uint32_t set,
                              std::uint64_t charge);
  [[nodiscard]] bool may_name(Posting& posting, std::size_t place) const;
  void remember(Posting& posting, std::size_t place, const KnownColumns::Arrays& arrays, const Composed& composed,
                bool named);
  struct Extent {
    const std::byte* begin;
    std::uint64_t bytes;
  };
  [[nodiscard]] Extent extent_of(std::size_t column, const void* const* data, const std::uint32_t* strides,
                                 std::uint64_t rows) const;
  [[nodiscard]] std::string name_of_buffer(std::size_t index) const;

  // A request of any form: names or copies its sources, lets `build` append the payload for their names, posts it.
  struct Request {
    wire::EntryKind kind;
    std::span<const Source> sources;
    std::uint64_t charge;
    std::uint32_t flags;
    TimeNs deadline;
  };
  using Build = std::function<void(std::span<const wire::BufferRef>, std::vector<std::byte>&)>;
  using Describe = std::function<std::string(std::size_t)>;  // the name of a source in errors
  [[nodiscard]] Result<std::uint64_t> post_sources(const Request& request, const Build& build,
                                                   const Describe& describe);
  // Sources that lie in `staged` need no copy.
  [[nodiscard]] Result<std::uint64_t> post_sources(const Request& request, const Build& build, const Describe& describe,
                                                   StagedBytes& staged);
  [[nodiscard]] Result<wire::BufferRef> name_source(Posting& posting, const Source& source, const Request& request,
                                                    Announced& announced);
  [[nodiscard]] Status copy(std::span<const Source> sources, const std::vector<bool>& chosen, TimeNs deadline,
                            std::span<wire::BufferRef> names, StagedBytes& staged);
  [[nodiscard]] Status gather(const ArrowArray& batch, const SendRequest& request, StagedBytes& staged);
  void note(std::uint64_t ticket, bool copied);
  [[nodiscard]] bool is_copied(std::uint64_t ticket) const;

  ConnectionPtr connection_;
  std::uint32_t number_ = 0;
  std::string name_;
  wire::Destination destination_ = wire::Destination::ipc_page;
  std::atomic<std::uint64_t> rows_max_ = 0;  // grows, while other threads send
  std::uint64_t charge_base_ = 0;
  frame::Layout layout_;
  std::vector<ColumnShape> columns_;
  std::vector<std::uint32_t> strides_;  // of the opening
  std::string not_plain_;               // why columns cannot be sent; empty: they can

  // Memory that send_columns reuses, so that a send allocates nothing. It belongs to the holder of the channel's lock;
  // functions return what they put there (Composed).
  struct Scratch {
    std::vector<std::byte> payload;
    std::vector<wire::BufferRef> names;
    std::vector<HostEnd::RangeName> uses;
    std::vector<std::uint32_t> hints;
  } scratch_;
  KnownColumns known_;  // likewise

  // Reused by send_batch.
  std::mutex batch_mutex_;
  frame::BatchView view_;

  // Tickets of batches that were copied do not lease the program's memory: they count as pulled at once.
  std::atomic<std::uint64_t> leased_ticket_ = 0, copied_ticket_ = 0;  // the newest of each
  mutable std::mutex copied_mutex_;
  std::vector<std::uint64_t> copied_;  // not pulled yet
};

// A key or name of the caller; NULL is the empty one.
[[nodiscard]] Result<std::string_view> checked_key(const char* key, const char* what,
                                                   std::size_t bytes_max = wire::key_bytes_max);

// The schema of ofp_stream_open_columns.
[[nodiscard]] Result<frame::Schema> schema_of_columns(const ofp_column* columns, std::uint32_t count);

}  // namespace offpath::host

struct ofp_stream {
  std::unique_ptr<offpath::host::Stream> stream;
};
