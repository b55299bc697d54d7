// Exchanges as a program sees them. Read wire/areas/exchange_area.h first.
//
// Views and granted amounts are read from the program's own memory; the agent is asked only to open and close, to sleep
// until the next view, and to grant.
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/suspend_clock.h"
#include "host/connection.h"
#include "wire/areas/exchange_area.h"
#include "wire/limits.h"
#include "wire/messages/exchange_messages.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/region.h"

namespace offpath::host {

namespace {

constexpr std::uint64_t view_bytes_by_default_max = 1ull << 30;
constexpr TimeNs agent_answers_ns = 5 * second_ns;
constexpr std::uint64_t room_bytes = 256 * 1024;  // for a description, at first
constexpr std::size_t remembered = 256;           // times of records, for grants that are counted from them

Result<std::uint64_t> done_of(const channel::Reply& reply) {
  wire::Done done{};
  if (reply.kind != wire::ReplyKind::done)
    return fail(Error::protocol, "the agent answered a question about an exchange with reply kind {}",
                static_cast<int>(reply.kind));
  OFP_TRY(wire::decode(reply.payload, done));
  return done.value;
}

Result<std::uint64_t> ask(Connection& connection, wire::EntryKind kind, const std::vector<std::byte>& payload,
                          TimeNs deadline) {
  OFP_ASSIGN(const channel::Reply reply, connection.end.call(kind, payload, deadline));
  return done_of(reply);
}

template <class Word>
Word load_acquire(const std::byte* from) noexcept {
  return std::atomic_ref<Word>(*reinterpret_cast<Word*>(const_cast<std::byte*>(from))).load(std::memory_order_acquire);
}

template <class Word>
void store_release(std::byte* to, Word value) noexcept {
  std::atomic_ref<Word>(*reinterpret_cast<Word*>(to)).store(value, std::memory_order_release);
}

}  // namespace

}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

// A view is this program's own copy; its tables were checked when it was made.
struct ofp_view {
  wire::ViewHead head{};
  std::vector<std::byte> bytes;
};

struct ofp_exchange {
  ConnectionPtr connection;
  std::uint64_t number = 0;
  wire::RegionId region = 0;
  MutableBytes area;
  std::uint64_t record_bytes = 0, view_bytes = 0;
  bool publishes = false;
  wire::ExchangeDescription told;
  std::vector<ofp_field> fields;
  std::mutex mutex;
  std::uint64_t published = 0, given = 0;
  std::uint64_t asked = 0;  // a request that the agent answers when there is a newer view. 0: none
  std::array<TimeNs, remembered> published_at{};
  // The grant in the newest view that was looked at.
  std::uint64_t granted = 0;
  TimeNs granted_until = 0;

  [[nodiscard]] std::uint64_t newest() const noexcept {
    return load_acquire<std::uint64_t>(area.data() + sizeof(wire::PublishLine));
  }
};

namespace offpath::host {

namespace {

// The clock of grants, which goes on while this machine is suspended.
TimeNs grant_time(const HostEnd& end) { return end.in_virtual_time() ? end.now() : boottime_ns(); }

Status describe(ofp_exchange& exchange) {
  HostEnd& end = exchange.connection->end;
  std::uint64_t length = room_bytes;
  for (int attempt = 0; attempt < 3; ++attempt) {
    OFP_ASSIGN(const wire::RegionId room, end.allocate(length, deadline_after(end.now(), agent_answers_ns)));
    std::vector<std::byte> payload;
    wire::encode(wire::ExchangeInfo{exchange.number, {.region = room, .generation = 0, .offset = 0, .length = length}},
                 payload);
    const auto told =
        ask(*exchange.connection, wire::EntryKind::exchange_info, payload, deadline_after(end.now(), agent_answers_ns));
    if (told && *told <= length) {
      auto description = wire::decode_description(end.segment(room).first(*told));
      end.free(room);
      if (!description) return tl::unexpected(std::move(description).error());
      exchange.told = std::move(*description);
      exchange.fields.clear();
      for (const wire::ExchangeField& each : exchange.told.fields)
        exchange.fields.push_back({each.name.c_str(), each.type, each.unit.empty() ? nullptr : each.unit.c_str()});
      return {};
    }
    end.free(room);
    if (!told) return tl::unexpected(told.error());
    if (*told > (std::uint64_t{64} << 20))
      return fail(Error::too_large, "the description of an exchange has {} bytes", *told);
    length = *told + room_bytes;
  }
  return fail(Error::would_block, "the exchange changes faster than it can be described");
}

Status open(ofp_exchange& exchange, std::string_view name, const ofp_exchange_options& options) {
  HostEnd& end = exchange.connection->end;
  // Opened once with minimal memory, to learn the necessary size.
  std::vector<std::byte> fields;
  if (options.fields_count != 0) {
    OFP_TRY(required(options.fields, "fields"));
    std::vector<wire::ExchangeField> given;
    for (std::uint32_t i = 0; i < options.fields_count; ++i) {
      const ofp_field& each = options.fields[i];
      OFP_TRY(required(each.name, "the name of a field"));
      if (each.type != 'u' && each.type != 'i' && each.type != 'f')
        return fail(Error::invalid, "field {} has the type '{}'; there are u, i and f", each.name, each.type);
      given.push_back({each.name, each.type, each.unit != nullptr ? each.unit : "", {}});
    }
    wire::encode_fields(given, fields);
  }
  const auto ask_open = [&](std::uint64_t record_bytes, std::uint64_t view_bytes, bool publishes) -> Status {
    const std::uint64_t length = wire::exchange_area_bytes(record_bytes, view_bytes);
    OFP_ASSIGN(exchange.region, end.allocate(length, deadline_after(end.now(), agent_answers_ns)));
    exchange.area = end.segment(exchange.region).first(length);
    exchange.record_bytes = record_bytes;
    exchange.view_bytes = view_bytes;
    std::vector<std::byte> payload;
    wire::encode(wire::ExchangeOpen{name,
                                    publishes,
                                    record_bytes,
                                    view_bytes,
                                    {.region = exchange.region, .generation = 0, .offset = 0, .length = length},
                                    fields},
                 payload);
    auto number =
        ask(*exchange.connection, wire::EntryKind::exchange_open, payload, deadline_after(end.now(), agent_answers_ns));
    if (!number) {
      end.free(exchange.region);
      return tl::unexpected(std::move(number).error());
    }
    exchange.number = *number;
    return {};
  };
  const auto ask_close = [&] {
    std::vector<std::byte> payload;
    wire::encode(wire::ExchangeClose{exchange.number}, payload);
    const auto closed = ask(*exchange.connection, wire::EntryKind::exchange_close, payload,
                            deadline_after(end.now(), agent_answers_ns));
    end.free(exchange.region);
    return closed.has_value();
  };
  OFP_TRY(ask_open(0, sizeof(wire::ViewHead), false));
  const Status described = describe(exchange);
  (void)ask_close();
  if (!described) return described;
  const wire::ExchangeDescription& told = exchange.told;
  const std::uint64_t record_bytes = options.record_bytes_max != 0 ? options.record_bytes_max : told.record_bytes;
  const std::uint64_t figures = told.reductions.size() * (sizeof(wire::ViewFigureRow) + 16 * 1024);
  const std::uint64_t all = sizeof(wire::ViewHead) + figures +
                            told.members.size() * (sizeof(wire::ViewEntryRow) + align_up(told.record_bytes, 8));
  const std::uint64_t view_bytes =
      options.view_bytes_max != 0 ? options.view_bytes_max : std::min(all, view_bytes_by_default_max);
  if (record_bytes > told.record_bytes)
    return fail(Error::too_large, "records of {} bytes, exchange {} has at most {}", record_bytes, name,
                told.record_bytes);
  if (view_bytes < sizeof(wire::ViewHead) || view_bytes > wire::exchange_view_bytes_max)
    return fail(Error::invalid, "views of {} bytes", view_bytes);
  exchange.publishes = options.publish != 0;
  OFP_TRY(ask_open(record_bytes, view_bytes, exchange.publishes));
  if (const Status again = describe(exchange); !again) {
    (void)ask_close();
    return again;
  }
  return {};
}

// Every row lies within the view.
Status check_view(const ofp_view& view) {
  const wire::ViewHead& head = view.head;
  const std::uint64_t length = view.bytes.size();
  const std::uint64_t rows = sizeof head + std::uint64_t{head.entries} * sizeof(wire::ViewEntryRow) +
                             std::uint64_t{head.figures} * sizeof(wire::ViewFigureRow);
  if (rows > length) return fail(Error::protocol, "a view of {} bytes has rows up to {}", length, rows);
  const auto lies_within = [&](std::uint64_t offset, std::uint64_t bytes) {
    return bytes == 0 || (offset <= length && bytes <= length - offset);
  };
  for (std::uint32_t i = 0; i < head.entries; ++i) {
    const auto row = load<wire::ViewEntryRow>(view.bytes.data() + sizeof head + i * sizeof(wire::ViewEntryRow));
    if (!lies_within(row.offset, row.length))
      return fail(Error::protocol, "the record of member {} lies outside of its view", row.member);
  }
  for (std::uint32_t i = 0; i < head.figures; ++i) {
    const auto row = load<wire::ViewFigureRow>(
        view.bytes.data() + sizeof head + head.entries * sizeof(wire::ViewEntryRow) + i * sizeof(wire::ViewFigureRow));
    if (row.offset % 8 != 0 ||
        !lies_within(row.offset, row.ranked * sizeof(ofp_ranked) + row.bins * sizeof(std::uint64_t)))
      return fail(Error::protocol, "figure {} lies outside of its view", i);
  }
  return {};
}

// The newest view, if this program has not been given it.
Result<std::unique_ptr<ofp_view>> look(ofp_exchange& exchange) {
  auto view = std::make_unique<ofp_view>();
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const std::uint64_t number = exchange.newest();
    if (number <= exchange.given) return nullptr;
    const std::byte* slot =
        exchange.area.data() + wire::view_slot_at(number, exchange.record_bytes, exchange.view_bytes);
    const auto head = load<wire::ViewHead>(slot);
    if (head.number == number && head.length >= sizeof head && head.length <= exchange.view_bytes)
      view->bytes.assign(slot, slot + head.length);
    std::atomic_thread_fence(std::memory_order_acquire);
    // The next view goes to the other slot; the one after that is begun only when the next one is there.
    if (exchange.newest() != number) continue;
    if (head.number != number || view->bytes.size() != head.length)
      return fail(Error::protocol, "view {} is said to have number {} and {} bytes", number, head.number, head.length);
    view->head = load<wire::ViewHead>(view->bytes.data());
    OFP_TRY(check_view(*view));
    exchange.given = number;
    const bool is_known = head.grant_record != 0 && head.grant_record <= exchange.published &&
                          head.grant_record + remembered > exchange.published;
    exchange.granted = is_known ? head.grant_amount : 0;
    exchange.granted_until = is_known ? exchange.published_at[head.grant_record % remembered] + head.grant_valid_ns : 0;
    return view;
  }
  return fail(Error::would_block, "views come faster than they can be copied");
}

// A program that uses a grant has to look again in time. So a wait ends at its deadline even if the agent is stopped,
// and its request stays with the agent for the next wait.
Result<std::unique_ptr<ofp_view>> next_view(ofp_exchange& exchange, TimeNs deadline, bool waits) {
  HostEnd& end = exchange.connection->end;
  while (true) {
    OFP_ASSIGN(auto view, look(exchange));
    if (view) {
      if (view->head.tree != exchange.told.tree) OFP_TRY(describe(exchange));  // other members
      return view;
    }
    if (!waits) {
      OFP_TRY(end.poll_beside());  // a lost agent shows nothing more
      return fail(Error::would_block, "there is no newer view");
    }
    if (end.now() >= deadline)
      return fail(Error::timeout, "there was no newer view of exchange {} in time", exchange.number);
    if (exchange.asked == 0) {
      std::vector<std::byte> payload;
      wire::encode(wire::ExchangeWait{exchange.number, exchange.given, -1}, payload);
      OFP_ASSIGN(exchange.asked, end.ask(wire::EntryKind::exchange_wait, payload, deadline));
    }
    OFP_TRY(end.wait_reply({&exchange.asked, 1}, deadline));
    if (auto reply = end.take_reply(exchange.asked)) {
      exchange.asked = 0;
      OFP_ASSIGN(const channel::Reply answer, channel::unfailed(std::move(*reply)));
      OFP_TRY(done_of(answer));
    }
  }
}

Status publish(ofp_exchange& exchange, Bytes record) {
  if (!exchange.publishes) return fail(Error::invalid, "this exchange was opened without publish");
  if (record.size() > exchange.record_bytes)
    return fail(Error::too_large, "a record of {} bytes; the exchange was opened with at most {}", record.size(),
                exchange.record_bytes);
  const TimeNs now = exchange.connection->end.now();
  const std::uint64_t number = ++exchange.published;
  exchange.published_at[number % remembered] = grant_time(exchange.connection->end);
  std::byte* slot = exchange.area.data() + wire::record_slot_at(number, exchange.record_bytes);
  // A reader of the record before the last one notices that it is gone.
  store_release<std::uint64_t>(slot, 0);
  std::atomic_thread_fence(std::memory_order_release);
  wire::RecordHead head{};
  head.length = record.size();
  head.published_at_ns = now;
  head.crc32c = wire::record_crc(number, record);
  head.view_number = exchange.given;
  store(slot, head);
  if (!record.empty()) std::memcpy(slot + sizeof head, record.data(), record.size());
  store_release<std::uint64_t>(slot, number);
  store_release<std::uint64_t>(exchange.area.data(), number);
  return {};
}

}  // namespace

}  // namespace offpath::host

extern "C" {

int ofp_exchange_open(ofp_channel* channel, const char* name, const ofp_exchange_options* options,
                      ofp_exchange** exchange, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(name, "name"));
    OFP_TRY(required(exchange, "exchange"));
    *exchange = nullptr;
    ofp_exchange_options given{};
    if (options != nullptr) {
      OFP_TRY(check_struct_bytes(options->struct_bytes, sizeof given, "ofp_exchange_options"));
      std::memcpy(&given, options, std::min<std::size_t>(options->struct_bytes, sizeof given));
    }
    OFP_TRY(channel->connection->here());
    const std::string_view text(name);
    if (text.empty() || text.size() > wire::name_bytes_max)
      return fail(Error::invalid, "the name of an exchange has {} characters", text.size());
    auto made = std::make_unique<ofp_exchange>();
    made->connection = channel->connection;
    OFP_TRY(open(*made, text, given));
    *exchange = made.release();
    return {};
  });
}

void ofp_exchange_close(ofp_exchange* exchange) {
  const std::unique_ptr<ofp_exchange> owned(exchange);
  if (exchange == nullptr || !exchange->connection->here()) return;
  HostEnd& end = exchange->connection->end;
  std::vector<std::byte> payload;
  wire::encode(wire::ExchangeClose{exchange->number}, payload);
  (void)ask(*exchange->connection, wire::EntryKind::exchange_close, payload,
            deadline_after(end.now(), agent_answers_ns));
  if (exchange->asked != 0) end.forget(exchange->asked);  // the agent has answered it before the other
  end.free(exchange->region);
}

int ofp_exchange_info_get(ofp_exchange* exchange, ofp_exchange_info* info, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(exchange, "exchange"));
    OFP_TRY(required(info, "info"));
    OFP_TRY(check_struct_bytes(info->struct_bytes, sizeof *info, "ofp_exchange_info"));
    const std::scoped_lock lock(exchange->mutex);
    const wire::ExchangeDescription& told = exchange->told;
    ofp_exchange_info filled{};
    filled.struct_bytes = info->struct_bytes;
    filled.members = static_cast<std::uint32_t>(told.members.size());
    filled.self = told.self;
    filled.fields = static_cast<std::uint32_t>(told.fields.size());
    filled.reductions = static_cast<std::uint32_t>(told.reductions.size());
    filled.has_grants = told.grant_total != 0;
    filled.record_bytes_max = exchange->record_bytes;
    filled.interval_ns = told.interval_ns;
    filled.deadline_ns = told.deadline_ns;
    filled.grant_total = told.grant_total;
    std::memcpy(filled.topology, told.topology.data(), std::min(told.topology.size(), sizeof filled.topology - 1));
    std::memcpy(info, &filled, std::min<std::size_t>(info->struct_bytes, sizeof filled));
    return {};
  });
}

const char* ofp_exchange_member(ofp_exchange* exchange, uint32_t member) {
  if (exchange == nullptr || member >= exchange->told.members.size()) return nullptr;
  return exchange->told.members[member].c_str();
}

int ofp_exchange_field(ofp_exchange* exchange, uint32_t index, ofp_field* field) {
  if (exchange == nullptr || field == nullptr || index >= exchange->fields.size()) return OFP_NOT_FOUND;
  *field = exchange->fields[index];
  return OFP_OK;
}

const char* ofp_exchange_reduction(ofp_exchange* exchange, uint32_t index) {
  if (exchange == nullptr || index >= exchange->told.reductions.size()) return nullptr;
  return exchange->told.reductions[index].c_str();
}

int ofp_exchange_publish(ofp_exchange* exchange, const void* record, uint64_t record_bytes, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(exchange, "exchange"));
    if (record_bytes != 0) OFP_TRY(required(record, "record"));
    OFP_TRY(exchange->connection->here());
    const std::scoped_lock lock(exchange->mutex);
    return publish(*exchange, Bytes(static_cast<const std::byte*>(record), record_bytes));
  });
}

int ofp_exchange_view(ofp_exchange* exchange, int64_t wait_ns, ofp_view** view, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(exchange, "exchange"));
    OFP_TRY(required(view, "view"));
    *view = nullptr;
    OFP_TRY(exchange->connection->here());
    OFP_ASSIGN(auto next, next_view(*exchange, exchange->connection->deadline(wait_ns), wait_ns != 0));
    *view = next.release();
    return {};
  });
}

void ofp_view_free(ofp_view* view) { delete view; }

int ofp_view_info_get(const ofp_view* view, ofp_view_info* info, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(view, "view"));
    OFP_TRY(required(info, "info"));
    OFP_TRY(check_struct_bytes(info->struct_bytes, sizeof *info, "ofp_view_info"));
    const wire::ViewHead& head = view->head;
    ofp_view_info filled{};
    filled.struct_bytes = info->struct_bytes;
    filled.present = head.present;
    filled.expected = head.expected;
    filled.whole = (head.flags & wire::view_whole) != 0;
    filled.leader = head.leader;
    filled.is_leader = (head.flags & wire::view_leads) != 0;
    filled.entries = head.entries;
    filled.figures = head.figures;
    filled.cut = (head.flags & wire::view_cut) != 0;
    filled.figure_members = head.figure_members;
    filled.number = head.number;
    filled.epoch = head.epoch;
    filled.took_ns = head.took_ns;
    filled.tree = head.tree;
    std::memcpy(info, &filled, std::min<std::size_t>(info->struct_bytes, sizeof filled));
    return {};
  });
}

int ofp_view_entry_get(const ofp_view* view, uint32_t index, ofp_view_entry* entry) {
  if (view == nullptr || entry == nullptr || index >= view->head.entries) return OFP_NOT_FOUND;
  const auto row =
      load<wire::ViewEntryRow>(view->bytes.data() + sizeof view->head + index * sizeof(wire::ViewEntryRow));
  *entry = {};
  entry->member = row.member;
  entry->present = (row.flags & wire::entry_present) != 0;
  entry->has_value = (row.flags & wire::entry_has_value) != 0 && (row.flags & wire::entry_cut) == 0;
  entry->epoch = row.epoch;
  entry->age_ns = row.age_ns;
  entry->record = row.length != 0 ? view->bytes.data() + row.offset : nullptr;
  entry->record_bytes = row.length;
  return OFP_OK;
}

int ofp_view_figure_get(const ofp_view* view, uint32_t index, ofp_view_figure* figure) {
  if (view == nullptr || figure == nullptr || index >= view->head.figures) return OFP_NOT_FOUND;
  const auto row =
      load<wire::ViewFigureRow>(view->bytes.data() + sizeof view->head +
                                view->head.entries * sizeof(wire::ViewEntryRow) + index * sizeof(wire::ViewFigureRow));
  const std::byte* words = view->bytes.data() + row.offset;
  *figure = {};
  figure->count = row.count;
  figure->value = row.value;
  figure->exact = row.bits;
  figure->top =
      row.ranked != 0 ? reinterpret_cast<const ofp_ranked*>(words + row.bins * sizeof(std::uint64_t)) : nullptr;
  figure->bins = row.bins != 0 ? reinterpret_cast<const std::uint64_t*>(words) : nullptr;
  figure->top_count = row.ranked;
  figure->bins_count = row.bins;
  return OFP_OK;
}

int ofp_exchange_grant(ofp_exchange* exchange, const uint32_t* members, const uint64_t* amounts, uint32_t count,
                       uint32_t* may_grant, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(exchange, "exchange"));
    if (count != 0) OFP_TRY(required(members, "members"));
    if (count != 0) OFP_TRY(required(amounts, "amounts"));
    OFP_TRY(exchange->connection->here());
    std::uint64_t told = 0;
    for (std::uint32_t at = 0; at < count || at == 0;) {
      wire::ExchangeGrant grant{exchange->number, {}};
      for (; at < count && grant.targets.size() < wire::exchange_targets_max; ++at)
        grant.targets.push_back({members[at], 0, amounts[at]});
      std::vector<std::byte> payload;
      wire::encode(grant, payload);
      HostEnd& end = exchange->connection->end;
      OFP_ASSIGN(told, ask(*exchange->connection, wire::EntryKind::exchange_grant, payload,
                           deadline_after(end.now(), agent_answers_ns)));
      if (count == 0) break;
    }
    if (may_grant != nullptr) *may_grant = told != 0;
    return {};
  });
}

int ofp_exchange_granted(ofp_exchange* exchange, uint64_t* amount, int64_t* left_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(exchange, "exchange"));
    OFP_TRY(required(amount, "amount"));
    OFP_TRY(exchange->connection->here());
    const TimeNs left = exchange->granted_until - grant_time(exchange->connection->end);
    *amount = left > 0 ? exchange->granted : 0;
    if (left_ns != nullptr) *left_ns = std::max<TimeNs>(left, 0);
    return {};
  });
}

int ofp_exchange_run(ofp_exchange* exchange, ofp_compute_local compute_local, ofp_on_view on_view, void* user,
                     int64_t wait_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(exchange, "exchange"));
    OFP_TRY(required(reinterpret_cast<const void*>(on_view), "on_view"));
    OFP_TRY(exchange->connection->here());
    const TimeNs deadline = exchange->connection->deadline(wait_ns);
    std::vector<std::byte> record(exchange->record_bytes);
    while (true) {
      if (compute_local != nullptr) {
        const std::uint64_t bytes = compute_local(user, record.data(), record.size());
        if (bytes > record.size())
          return fail(Error::too_large, "compute_local says that it made {} bytes in {}", bytes, record.size());
        const std::scoped_lock lock(exchange->mutex);
        if (bytes != 0) OFP_TRY(publish(*exchange, Bytes(record).first(bytes)));
      }
      OFP_ASSIGN(const std::unique_ptr<ofp_view> view, next_view(*exchange, deadline, true));
      if (on_view(user, exchange, view.get()) != 0) return {};
    }
  });
}

}  // extern "C"
