// What the rings carry: requests of the host (EntryKind) and replies of the agent (ReplyKind).
//
// Each kind has a plain struct, an `encode` that appends it to bytes, and a `decode_…` that checks bytes
// another process wrote: lengths, counts and enumerations, never the meaning. Strings and spans of a decoded
// struct point into the bytes it was decoded from, which are the decoder's own copy.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/region.h"
#include "wire/slot.h"

namespace offpath::wire {

enum class EntryKind : std::uint8_t {
  announce_range = 1,
  retire_range = 2,
  open_stream = 3,
  close_stream = 4,
  send = 5,
  move = 6,
  step_end = 7,
  wake_at = 8,
  need_credit = 9,
  probe = 10,
  pool_get = 11,
  pool_list = 12,
  pool_drop = 13,
  pool_write = 14,
  release = 15,
  member_table = 16,
  peer_put = 17,
  peer_get = 18,
  peer_deliver = 19,
  peer_list = 20,
  peer_drop = 21,
  peer_step_end = 22,
  peer_define = 23,
  pool_query = 24,
  query_next = 25,
  pool_compute = 26,
  peer_compute = 27,
  push_lease = 28,
  peer_piece = 30,
  sift_flush = 31,
  peer_flush = 32,
  sift_tracks = 33,
  peer_tracks = 34,
  sift_info = 35,
  peer_query = 36,
  peer_query_next = 37,
  peer_cancel = 38,
  pool_cancel = 39,
  gauges_open = 40,
  gauges_close = 41,
  exchange_open = 48,
  exchange_info = 49,
  exchange_wait = 50,
  exchange_grant = 51,
  exchange_close = 52,
  peer_exchange = 53,
  task_open = 64,
  task_run = 65,
  task_wait = 66,
  task_cancel = 67,
  task_close = 68,
  peer_lanes = 69,
  peer_receive = 70,
  peer_message = 71,
  tcp_open = 72,
  tcp_close = 73,
};

enum class ReplyKind : std::uint8_t {
  failed = 1,
  opened = 2,
  probed = 3,
  got = 4,
  listed = 5,
  done = 6,
  task_done = 7,
};

inline constexpr std::size_t key_bytes_max = 64 << 10;
inline constexpr std::size_t pattern_bytes_max = 3 * key_bytes_max;  // of any key there is one that only it matches: a set for each character
inline constexpr std::size_t enclosed_bytes_max = 1024;  // an object of no more comes in its answer
inline constexpr std::size_t name_bytes_max = 255;
inline constexpr std::size_t pool_bytes_max = 1024;  // of a pool's name with its options
inline constexpr std::size_t arguments_bytes_max = 32 << 10;  // of a function, in the request itself
inline constexpr std::uint32_t buffers_max = 2800;  // of one send
inline constexpr std::uint32_t sets_max = 32;          // of buffers a stream's agent remembers
inline constexpr std::uint32_t set_buffers_max = 64;   // of each
inline constexpr std::uint64_t sets_bytes_max = 2 << 20;  // of one channel, by set_bytes: both sides count
[[nodiscard]] constexpr std::uint64_t set_bytes(std::uint64_t buffers) noexcept { return 128 + 256 * buffers; }  // with a plan

enum class Destination : std::uint8_t { native, arrays, record_batch, ipc, ipc_page, c_abi, agent_serialise, serialised };
inline constexpr std::uint8_t destinations = 8;
[[nodiscard]] std::string_view destination_name(Destination destination) noexcept;
[[nodiscard]] Result<Destination> parse_destination(std::string_view name);  // the error lists all names

// Of a frame's bodies, as Arrow IPC has it.
enum class Compression : std::uint8_t { none, lz4, zstd };
inline constexpr std::uint8_t compressions = 3;
[[nodiscard]] std::string_view compression_name(Compression compression) noexcept;
[[nodiscard]] Result<Compression> parse_compression(std::string_view name);  // the error lists all names

// ---- requests

struct AnnounceRange {
  RegionId range;
  std::uint32_t generation;
  std::uint64_t base;
  std::uint64_t length;
  std::uint32_t key;
};

struct RetireRange {
  RegionId range;
  std::uint32_t generation;
};

struct OpenStream {
  std::uint32_t stream;
  Destination destination;
  std::uint64_t rows_max;
  std::uint64_t keep;  // frames the pool keeps; 0: all
  std::uint32_t ranks;
  std::uint32_t rank;
  std::string_view name;
  std::string_view pool;
  Bytes schema;        // frame::encode; empty: plain bytes (native, serialised)
  Compression compression = Compression::none;  // of frames that are Arrow as they were pulled (ipc, ipc-page)
};

struct CloseStream {
  std::uint32_t stream;
};

struct Node {
  std::int64_t length;
  std::int64_t null_count;  // -1: not known
};
static_assert(sizeof(Node) == 16);

// One batch. With no nodes, every node has `rows` rows and no nulls, and `buffers` are the value buffers of
// the leaf columns only: fixed-width columns without validity. Otherwise nodes and buffers are all of the
// template's, dictionaries first, in the order of frame::Template.
//
// A program that sends the same arrays again and again names them once: buffers that come with a set number, from 1 to
// sets_max, are remembered under it until others come with that number or the stream is closed; a set number without
// buffers stands for what was remembered, with the rows it came with. Only without nodes. Remembered names grow stale as
// others do.
struct Send {
  std::uint32_t stream;
  std::uint64_t charge;  // what the host took from its credit for it: charge_base, charge_of_keys and charge_of_buffer of each buffer
  std::uint64_t rows;
  std::string_view row_key;
  std::string_view column_key;
  std::vector<Node> nodes;
  std::vector<BufferRef> buffers;
  std::uint32_t set = 0;  // 0: none
};

struct MovePiece {
  BufferRef source;
  std::uint64_t target_offset;
};
static_assert(sizeof(MovePiece) == 40);

struct Move {
  std::uint32_t stream;
  bool update;           // an object that is there already
  std::uint64_t charge;  // as of Send
  std::uint64_t object_bytes;
  std::string_view row_key;
  std::string_view column_key;
  std::vector<MovePiece> pieces;
};

struct StepEnd {
  std::uint32_t stream;
  std::string_view row_key;
};

// The host is about to sleep: wake it when `word` has reached `value`. Posted in order, so `now` also means: when
// everything posted before has been taken out of the ring.
enum class WakeWord : std::uint8_t { pulled, stored, credit, replies, now };

struct WakeAt {
  std::uint32_t stream;  // of the completion line; 0 for replies and now
  WakeWord word;
  std::uint64_t value;   // replies: the position up to which the host has read the reply ring; wakes beyond it
};
inline constexpr std::uint32_t any_reply = 0xFFFF'FFFFu;  // in Failed: no stream is concerned

struct NeedCredit {
  std::uint32_t stream;
  std::uint64_t total;  // the credit word the host waits for
};

// Answered by Got, with a descriptor, or `needs_segment` where none can cross: a PushLease follows.
struct PoolGet {
  std::string_view pool;
  std::string_view row_key;
  std::string_view column_key;
  std::int64_t wait_ns;  // how long the agent may hold the request until the object is there
};

struct PoolList {
  std::string_view pool;
  std::string_view row_glob;
  std::string_view column_glob;
  std::uint64_t after;  // sequence of the last entry known; 0: from the beginning
};

struct PoolDrop {
  std::string_view pool;
  std::string_view row_glob;
  std::string_view column_glob;
};

struct PoolWrite {
  std::string_view pool;
  std::uint64_t offer;  // number of the descriptor offered on the control socket
};

// The query's bytes (pool/query.h) are pulled from `query`. Answered by Done with the number of the answer, which lasts until
// its last frame was asked for, it is released, or `wait_ns` is over; -1: for ever.
struct PoolQuery {
  std::string_view pool;
  std::string_view row_glob;
  std::string_view column_glob;
  std::int64_t wait_ns;
  BufferRef query;
};

// Frame `index` of an answer, in order: those before it have arrived. Answered as PoolGet is; by Done after the last one.
struct QueryNext {
  std::uint64_t answer;
  std::uint64_t index;
};

// A function of a plug-in over one object, or over all of a row where `column_key` is empty, called where the row lies. Answered
// as PoolGet is, with its output, or by Done with how many there were: none, or they were put into the pool.
struct PoolCompute {
  std::string_view pool;
  std::string_view row_key, column_key;
  std::int64_t wait_ns;     // for objects and function together; 0: the objects have to be there, the function has its plug-in's time
  bool stores;              // outputs are put under the result's keys
  std::string_view plugin, function;
  std::string_view result_row, result_column;
  Bytes arguments;
};

// The frame of a lease is to be pushed into a segment of as many bytes, and the lease is over. Answered by Got: `pushed`.
struct PushLease {
  std::uint64_t lease;
  RegionId segment;
};

// Of a frame's lease, or of an answer that no more frames are wanted of.
struct Release {
  std::uint64_t lease;
};

// A PoolGet, PoolCompute, PoolQuery or QueryNext of this channel, by the ticket of its request, is not wanted any more. It is answered all the same, by a failure if it
// was under way; this has no answer of its own.
struct PoolCancel {
  std::uint64_t ticket;
};

// Agent to agent: the poster's table of members lies there, as a MemberTable. Answered by Done when it has been read.
struct PostTable {
  BufferRef table;
};

// Agent to agent, for a pool they share: the asking one acts for `user`. `pool` is its name with its options, so that
// the one asked need not have heard of it. All of them are served from what the one asked holds itself.
struct PeerPut {
  std::uint64_t user;
  std::uint64_t writer;   // process and number of the put: the same again is the same put, whose answer was lost
  std::uint64_t number;
  std::uint64_t rows;
  std::uint64_t keep;     // as of OpenStream
  std::int64_t wait_ns;   // for room; nobody wants to know any more then
  bool arrow;
  bool hidden;            // until its step has ended on all ranks
  bool moved;             // from an owner before: an object that is there already is newer
  bool recovered;         // and the sender has it from before its own start
  std::uint64_t offer;    // not 0: the bytes are in the descriptor of that number
  BufferRef object;       // where the bytes are, or how many
  std::string_view pool, row_key, column_key;
};

// Answered by Got: `pushed`, if the object fitted the inbox and lies there; `delivered`, if it was delivered under
// `delivery` by a PeerDeliver, for which the one asked was the asking one.
struct PeerGet {
  std::uint64_t user;
  std::int64_t wait_ns;
  std::uint64_t delivery;
  BufferRef inbox;
  std::string_view reader;  // the asking member
  std::string_view pool, row_key, column_key;
};

// The asking member's part of a query: of the rows whose first living owner the one asked is. `query` are its bytes, `number` the asking
// member's for this part, `view` stands for the members that it knows of: if the one asked knows of others, it is would_block.
// Answered by Done when the part has begun: 0, if nothing matches there.
struct PeerQuery {
  std::uint64_t user;
  std::int64_t wait_ns;
  std::uint64_t number;
  std::uint64_t view;
  BufferRef query;
  std::string_view pool, row_glob, column_glob;
};

// A frame of that part, in order. Answered as PeerGet is, and by Done after the last one.
struct PeerQueryNext {
  std::uint64_t number;
  std::uint64_t index;
  std::uint64_t delivery;
  BufferRef inbox;
  std::string_view reader;
};

// What was asked on the same channel is not wanted any more: a query's part or a receive by its number, a computation or a get by its delivery. What
// waits for an answer gets a failure. Answered by Done, also if there is nothing of that number.
struct PeerCancel {
  enum class What : std::uint8_t { query, computation, get, receive } what;
  std::uint64_t number;
};

struct PeerDeliver {
  std::uint64_t delivery;
  std::uint64_t rows;
  bool arrow;
  std::uint64_t offer;
  BufferRef object;
};

// PoolCompute asked of the row's owner; answered as PeerGet is, or by Done.
struct PeerCompute {
  std::uint64_t user;
  std::int64_t wait_ns;
  std::uint64_t delivery;
  BufferRef inbox;
  std::string_view reader;
  std::string_view pool, row_key, column_key;
  bool stores;
  std::string_view plugin, function;
  std::string_view result_row, result_column;
  Bytes arguments;
};

struct PeerList {  // Listed
  std::uint64_t user;
  std::uint64_t after;
  std::string_view pool, row_glob, column_glob;
};

struct PeerDrop {  // Done: how many rows it is the first owner of
  std::uint64_t user;
  std::string_view pool, row_glob, column_glob;
};

struct PeerStepEnd {
  std::uint64_t user;
  std::uint32_t rank, ranks;
  std::string_view pool, row_key;
};

// Agent to agent: a piece of a sift pool (src/sift/piece.h), offered. Answered by Done when it is the reader's; that may take
// as long as it has no room.
struct PeerPiece {
  std::uint64_t user;
  std::uint64_t offer;     // as of PeerPut
  BufferRef object;        // no bytes: the mark of a flush
  std::string_view pool;   // with its options
  Bytes header;
};

// All that was put before is in its tracks; Done. A program asks its agent, that one asks all members under one number.
struct SiftFlush {
  std::int64_t wait_ns;
  std::string_view pool;
};

struct PeerFlush {
  std::uint64_t user;
  std::uint64_t number;
  std::int64_t wait_ns;
  std::string_view pool;
};

// Rows of one element's tracks, ordered by identifier and step, as one Arrow frame with the step as first column. Answered
// as PoolGet is, or as PeerGet.
struct SiftTracks {
  std::uint32_t element;   // of all; otherwise the identifiers tell it
  bool all;                // otherwise those of `identifiers`, which are ascending and of one element
  std::int64_t first_step, last_step;
  std::string_view pool;
  std::vector<std::uint64_t> identifiers;
};

struct PeerTracks {
  std::uint64_t user;
  std::uint64_t delivery;
  BufferRef inbox;
  std::string_view reader;
  std::uint32_t element;
  bool all;
  std::int64_t first_step, last_step;
  std::string_view pool;
  std::vector<std::uint64_t> identifiers;
};

// How many elements keep a pool's tracks: Done. The low bits of an identifier tell the element.
struct SiftInfo {
  std::string_view pool;
};
inline constexpr std::size_t tracks_asked_max = 512;  // identifiers of one request

// Exchanges (wire/exchange_area.h has the memory). A program takes part in one: its records are pulled from `area`, views are pushed
// there. Done: the number that later requests name it by.
struct ExchangeOpen {
  std::string_view name;
  bool publishes;               // the exchange's records come from this program
  std::uint64_t record_bytes;   // of a record, at most: the area's slots
  std::uint64_t view_bytes;
  BufferRef area;
  Bytes fields;                 // encoded ExchangeField each; none: whatever the configuration says
};

// An ExchangeDescription is pushed to `room`, if it fits. Done: how many bytes it has.
struct ExchangeInfo {
  std::uint64_t number;
  BufferRef room;
};

// Done with the number of the newest view in the area, when that is more than `after`, or when `wait_ns` is over.
struct ExchangeWait {
  std::uint64_t number;
  std::uint64_t after;
  std::int64_t wait_ns;
};

// What the program would grant; it stays until changed, or the program goes. Done: 1 if this agent leads, and grants.
struct ExchangeWish {
  std::uint32_t member;
  std::uint32_t zero;
  std::uint64_t amount;
};
static_assert(sizeof(ExchangeWish) == 16);
struct ExchangeGrant {
  std::uint64_t number;
  std::vector<ExchangeWish> wishes;
};
inline constexpr std::size_t exchange_wishes_max = 2048;  // of one request

struct ExchangeClose {
  std::uint64_t number;
};

// Agent to agent: a parcel (src/exchange/parcel.h) of exchange `tag`, or a part of one that is larger: `parcel` counts the sender's
// parcels. The bytes are enclosed, or to be pulled. Done when they are the reader's.
struct PeerExchange {
  std::uint64_t tag;
  std::uint64_t parcel;
  std::uint64_t total_bytes;
  std::uint64_t offset;
  BufferRef part;
  Bytes bytes;  // enclosed; empty: pulled
};
inline constexpr std::uint64_t exchange_enclosed_max = 4096;
inline constexpr std::uint64_t exchange_part_max = 1 << 20;

// Agent to agent: which lanes of which teams of programs the asking one has, all of them, as a LaneTable that lies there. Done when it has
// been read.
struct PeerLanes {
  std::uint64_t process;  // of the sender: another one has other sessions
  std::uint64_t version;  // of its table: grows
  BufferRef table;
  std::string_view sender;
};

// Agent to agent: lane `to`, of the asking one, wants the next message that lane `from`, of the one asked, has sent it under `tag`; as soon as
// there is one. That comes by a PeerMessage with `number`. Done: 0, it was taken; otherwise it has so many bytes, and stays, for there is
// room for fewer. A failure: it stays, where there is any.
struct PeerReceive {
  std::uint64_t user;
  std::uint64_t session;  // of lane `from`
  std::uint64_t number;
  std::uint64_t room;
  std::uint64_t got;  // what was taken before of these, up to this message: that its answer has come nobody knows
  std::uint32_t lanes, from, to, tag;
  std::string_view reader;  // the asking member
  std::string_view team;
};

// The answer to a PeerReceive, in the other direction. Enclosed, in a descriptor, or to be pulled. Done when it was taken; not_found: nobody
// waits for it any more.
struct PeerMessage {
  std::uint64_t number;
  std::uint64_t message;  // of the sender's session
  std::uint64_t length;
  std::uint64_t offer;    // as of PeerPut
  BufferRef object;
  Bytes bytes;            // enclosed
};
inline constexpr std::uint64_t message_enclosed_max = 4096;
inline constexpr std::uint64_t message_bytes_max = 256ull << 20;  // of one message between lanes

struct PeerDefine {
  std::uint64_t user;  // whose pool it is
  std::string_view pool;
};

// ---- what lies in memory that a request names

// One member of a group of agents, as one of them knows it (docs/group.md).
struct MemberEntry {
  enum class State : std::uint8_t { alive, left, dead } state;
  std::uint64_t incarnation;  // grows with each start of the agent of that name that the others were told of
  std::uint64_t process;      // tells two processes of one name and incarnation apart
  std::uint64_t beats;        // grows while it lives
  std::string_view name;
  std::string_view address;   // for channels
  std::string_view http;      // empty: it has none
};

struct MemberTable {
  std::string_view sender;    // one of the entries
  std::vector<MemberEntry> entries;
};
inline constexpr std::uint32_t members_max = 1024;  // of one table
inline constexpr std::uint64_t member_table_bytes_max = 1 << 20;
static_assert(members_max * (25 + 3 * (2 + name_bytes_max)) + 512 <= member_table_bytes_max);

// The lanes that sessions of an agent's programs have claimed.
struct LaneEntry {
  std::uint64_t user;
  std::uint64_t session;
  std::uint32_t lane, lanes;
  std::string_view team;
};
struct LaneTable {
  std::vector<LaneEntry> entries;
};
inline constexpr std::size_t lane_table_max = 6000;
inline constexpr std::uint64_t lane_table_bytes_max = 2 << 20;  // what a request may name as its body (group::Reach)
static_assert(lane_table_max * (24 + 2 + name_bytes_max) + 64 <= lane_table_bytes_max);

// ---- replies

struct Failed {
  std::uint32_t stream;  // any_reply where no stream is concerned
  Error code;
  std::string_view message;
};

struct Opened {
  std::uint32_t stream;
  std::uint64_t charge_base;  // see charge below
};

struct Probed {
  std::int64_t seen_ns;
};

struct Got {
  enum class How : std::uint8_t { descriptor, pushed, needs_segment, delivered, enclosed } how;
  bool arrow;
  std::uint64_t lease;   // to be released, or to be pushed where a segment is needed; 0: none
  std::uint64_t length;  // bytes of the object
  std::uint64_t rows;
  Bytes bytes{};         // where it is enclosed: the object
};

struct ListedEntry {
  std::uint64_t sequence;
  std::uint64_t bytes;
  std::uint64_t rows;
  std::string_view row_key;
  std::string_view column_key;
};

struct Listed {
  bool more;
  std::vector<ListedEntry> entries;
};

// Values in a segment of the program that the agent reads from now on (wire/gauges_layout.h). Answered by Done, with their number.
struct GaugesOpen {
  BufferRef memory;
  std::string_view name;
  Bytes schema;  // exchange::encode
};

struct GaugesClose {
  std::uint64_t number;
};

struct Done {
  std::uint64_t value;
};

// Tasks (docs/task.md): functions over the program's own memory. A session is opened with words of memory of the program's own,
// one for each task under way. Done: the number that later requests name it by.
inline constexpr std::uint64_t task_line_bytes = 64;  // the first word of each is the agent's: the ticket whose inputs have been pulled
inline constexpr std::uint32_t task_any_lane = 0xFFFF'FFFFu;
inline constexpr std::uint32_t task_lines_max = 4096, task_lanes_max = 1u << 20;
inline constexpr std::size_t task_inputs_max = 128, task_outputs_max = 128, task_after_max = 64, task_plugins_max = 64, task_path_bytes_max = 1024;

// A plug-in of the program's own: run where the agent's configuration permits it (task.user_plugins).
struct TaskPlugin {
  std::string_view name, path;
};

struct TaskOpen {
  std::uint32_t lane;   // which of `lanes`; its tasks run in order, on the worker that stands for it. task_any_lane: on any, as they get ready
  std::uint32_t lanes;
  BufferRef lines;      // in a segment
  std::vector<TaskPlugin> plugins{};
  std::string_view team{};  // whose lanes send each other messages; empty: none
};

// An input. With a version it stays under its name, as that version: a task that names both has it without a pull, if it is
// still there. Where only a part differs from `changed_from`, another version, that part alone is pulled onto it.
struct TaskInput {
  BufferRef source;          // no bytes: it has to be there
  std::uint64_t bytes;       // of the input
  std::uint64_t version;     // 0: for this task alone
  std::uint64_t changed_from;  // 0: not said
  std::uint64_t changed_at, changed_bytes;
  std::string_view name;
};

// An output, of at most `bytes`. With a version it stays as an input for later tasks.
struct TaskOutput {
  BufferRef target;  // in a segment. No bytes: it is not pushed
  std::uint64_t bytes;
  std::uint64_t version;
  std::string_view name;
};

// Answered by TaskDone. Its inputs have been pulled when word `line` says its ticket; that is not said of one that fails before.
struct TaskRun {
  std::uint64_t session;
  std::uint32_t line;
  std::int64_t wait_ns;  // for all of it; 0: the plug-in's time counts
  std::string_view plugin, function;
  std::vector<std::uint64_t> after;  // tickets of this channel's tasks
  std::vector<TaskInput> inputs;
  std::vector<TaskOutput> outputs;
  Bytes arguments;
};

// Done when the inputs of that task have been pulled, or it has ended.
struct TaskWait {
  std::uint64_t ticket;
};

// The task is answered all the same: cancelled, if it was not pushing yet. This has no answer of its own.
struct TaskCancel {
  std::uint64_t ticket;
};

// Its tasks are cancelled, and what was kept is gone. Done.
struct TaskClose {
  std::uint64_t session;
};

struct TaskDone {
  std::uint64_t worker;  // tells processes apart: static variables of functions live as long as it stays the same
  std::int64_t pulled_ns, queued_ns, ran_ns, pushed_ns;  // how long each took; queued: until a worker began with it
  std::uint64_t pulled_bytes;
  std::vector<std::uint64_t> output_bytes;  // in the order of the request
};

// A program's TCP connections (docs/tcp.md): where the area lies (wire/tcp_area.h), and how it is laid out. Done, with the area's
// version; before that a descriptor comes, on which each side wakes the other by a datagram.
struct TcpOpen {
  BufferRef memory;  // the whole of a segment
  std::uint32_t version;
  std::uint32_t wish_slots, news_slots, flows;
};

// Its connections end as they do when the program ends. Done.
struct TcpClose {
  std::uint32_t version;
};

// What one batch takes from the credit: bytes of agent memory it may come to need. Both sides compute it.
[[nodiscard]] constexpr std::uint64_t charge_of_buffer(std::uint64_t length) noexcept { return align_up(length, page_bytes); }
// Short keys are part of charge_base.
inline constexpr std::uint64_t short_keys_bytes = 1024;
[[nodiscard]] constexpr std::uint64_t charge_of_keys(std::string_view row_key, std::string_view column_key) noexcept {
  const std::uint64_t bytes = row_key.size() + column_key.size();
  return bytes <= short_keys_bytes ? 0 : align_up(bytes, page_bytes);
}

#define OFFPATH_MESSAGES(X) \
  X(AnnounceRange) X(RetireRange) X(OpenStream) X(CloseStream) X(Send) X(Move) X(StepEnd) X(WakeAt) X(NeedCredit) \
  X(PoolGet) X(PoolList) X(PoolDrop) X(PoolWrite) X(PushLease) X(Release) X(PoolCancel) X(PostTable) X(MemberTable) \
  X(PeerPut) X(PeerGet) X(PeerDeliver) X(PeerList) X(PeerDrop) X(PeerStepEnd) X(PeerDefine) X(Failed) X(Opened) X(Probed) X(Got) X(Listed) X(Done) \
  X(PoolQuery) X(QueryNext) X(PoolCompute) X(PeerCompute) \
  X(PeerPiece) X(SiftFlush) X(PeerFlush) X(SiftTracks) X(PeerTracks) X(SiftInfo) \
  X(PeerQuery) X(PeerQueryNext) X(PeerCancel) \
  X(GaugesOpen) X(GaugesClose) \
  X(ExchangeOpen) X(ExchangeInfo) X(ExchangeWait) X(ExchangeGrant) X(ExchangeClose) X(PeerExchange) \
  X(TaskOpen) X(TaskRun) X(TaskWait) X(TaskCancel) X(TaskClose) X(TaskDone) \
  X(PeerLanes) X(PeerReceive) X(PeerMessage) X(LaneTable) \
  X(TcpOpen) X(TcpClose)
#define X(Message)                                              \
  void encode(const Message& message, std::vector<std::byte>& to); \
  [[nodiscard]] Status decode(Bytes payload, Message& message);
OFFPATH_MESSAGES(X)
#undef X

}  // namespace offpath::wire
