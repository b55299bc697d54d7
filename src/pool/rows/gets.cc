#include "pool/rows/gets.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "pool/directory/placement.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"

namespace offpath::pool {

using service::Answer;
using service::AskedMemory;
using service::ReplyEffect;
using wire::EntryKind;

namespace {

// An object up to so many bytes comes with its answer; a larger one is delivered.
constexpr std::uint32_t inbox_bytes = 16 << 10;

template <class Message>
ComputationPtr computation_of(const Message& asked) {
  return std::make_shared<const Computation>(Computation{std::string(asked.plugin),
                                                         std::string(asked.function),
                                                         {asked.arguments.begin(), asked.arguments.end()},
                                                         asked.stores,
                                                         std::string(asked.result_row),
                                                         std::string(asked.result_column)});
}

template <class Message>
std::uint64_t bytes_beside_keys(const Message& asked) {
  return asked.arguments.size() + asked.result_row.size() + asked.result_column.size();
}

}  // namespace

void Gets::get(ChannelNumber channel, uid_t user, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PoolGet asked{};
  if (auto status = wire::decode(request.payload, asked); !status)
    return PoolContext::refuse(channel, request.ticket, std::move(status).error(), effects);
  const auto name = parse_pool_name(asked.pool);
  if (!name) return PoolContext::refuse(channel, request.ticket, name.error(), effects);
  RemoteGet remote;
  remote.get = {.channel = channel,
                .ticket = request.ticket,
                .user = user,
                .pool = name->name,
                .keys = {std::string(asked.row_key), std::string(asked.column_key)},
                .wait_ns = asked.wait_ns,
                .deadline = deadline_after(now, asked.wait_ns),
                .asked_at = now};
  remote.last = {Error::not_found, fmt::format("there is no pool \"{}\"", name->name)};
  if (Status may = context_.table.charge(remote.get); !may)
    return PoolContext::refuse(channel, request.ticket, std::move(may).error(), effects);
  const std::uint64_t number = context_.numbers.take();
  gets_.add(number, std::move(remote));
  ask_next(number, now, effects);
}

// The next owner of the row, former owners included: the object may be moving between them.
void Gets::ask_next(std::uint64_t number, TimeNs now, Effects& effects) {
  RemoteGet* const known_get = gets_.find(number);
  if (known_get == nullptr) return;
  RemoteGet& remote = *known_get;
  gets_.set_due(number, never);
  const bool wanted_later = remote.get.wait_ns != 0;
  if (wanted_later && now >= remote.get.deadline) return give_up(number, now, effects);
  const Definition* const definition = context_.directory.known(remote.get.pool);
  if (definition == nullptr) return wanted_later ? gets_.await_pool(number) : give_up(number, now, effects);
  if (const std::uint64_t view = context_.directory.view(); std::exchange(remote.view, view) != view) remote.of_all = 0;
  const std::vector<std::string> candidates = candidates_of(remote, *definition);
  for (const std::string& candidate : candidates)
    if (ask_at(number, remote, *definition, candidate, now, effects)) return;
  if (candidates.empty())
    remote.last = {Error::not_found, fmt::format("pool \"{}\": none of its members is alive", definition->text)};
  if (!remote.waits && ask_any(number, remote, *definition, now, effects)) return;
  if (!wanted_later)
    return begin_last_look(remote, *definition, now) ? ask_next(number, now, effects) : give_up(number, now, effects);
  remote.ask_all_again();
  if (!std::exchange(remote.waits, true) && !candidates.empty()) return ask_next(number, now, effects);
  gets_.set_due(number, std::min(now + context_.options.retry_ns, remote.get.deadline));
}

bool Gets::ask_at(std::uint64_t number, RemoteGet& remote, const Definition& definition, const std::string& member,
                  TimeNs now, Effects& effects) {
  if (std::ranges::find(remote.tried, member) != remote.tried.end()) return false;
  if (member != context_.directory.self()) {
    ask_owner(number, remote, definition, member, now, effects);
    return true;
  }
  if (!remote.copied && !remote.unreadable && (is_here(remote) || remote.waits)) {
    serve_here(number, now, effects);
    return true;
  }
  note_absence_here(remote);
  return false;
}

// Members that are not known as owners.
bool Gets::ask_any(std::uint64_t number, RemoteGet& remote, const Definition& definition, TimeNs now,
                   Effects& effects) {
  if (remote.last_look || !context_.directory.is_settling(now)) return false;
  while (remote.of_all < definition.members.size())
    if (ask_at(number, remote, definition, definition.members[remote.of_all++], now, effects)) return true;
  return false;
}

// No member has it: asks the owners once more. False if only owners were asked, or that was the second round.
bool Gets::begin_last_look(RemoteGet& remote, const Definition& definition, TimeNs now) const {
  if (remote.last_look || !context_.directory.is_settling(now)) return false;
  const std::vector<std::string> owners = Directory::owners(definition, remote.get.keys.first);
  const std::size_t looked_at = remote.tried.size();
  const std::size_t of_owners = std::erase_if(
      remote.tried, [&](const std::string& member) { return std::ranges::find(owners, member) != owners.end(); });
  remote.last_look = true;
  return of_owners < looked_at;
}

// Asks all owners before waiting at one: only the last one may have it. Sets whether it waits.
std::vector<std::string> Gets::candidates_of(RemoteGet& remote, const Definition& definition) const {
  const std::string& row = remote.get.keys.first;
  std::vector<std::string> candidates = Directory::owners(definition, row);
  remote.waits |= remote.get.wait_ns != 0 && (candidates.size() < 2 || remote.computation);
  if (remote.waits && !is_here(remote)) return candidates;
  for (std::string& before :
       owners_of(definition.name.policy, definition.name.options.replicas, row, definition.before))
    if (context_.directory.is_alive(before) && std::ranges::find(candidates, before) == candidates.end())
      candidates.push_back(std::move(before));
  return candidates;
}

bool Gets::is_here(const RemoteGet& remote) const {
  return remote.computation ? context_.table.holds_row(remote.get.pool, remote.get.keys.first)
                            : context_.table.holds(remote.get.pool, remote.get.keys);
}

void Gets::serve_here(std::uint64_t number, TimeNs now, Effects& effects) {
  RemoteGet here = gets_.take(number);
  if (here.computation) return computes_->begin(std::move(here.get), std::move(here.computation), now, effects);
  context_.table.get(std::move(here.get), effects);
}

void Gets::note_absence_here(RemoteGet& remote) const {
  const auto& [row, column] = remote.get.keys;
  remote.tried.push_back(context_.directory.self());
  remote.note({Error::not_found,
               fmt::format("pool \"{}\" has no object ({}, {})", remote.get.pool, brief(row), brief(column))});
}

void Gets::ask_owner(std::uint64_t number, RemoteGet& remote, const Definition& definition, const std::string& owner,
                     TimeNs now, Effects& effects) {
  const FrameTable::Get& get = remote.get;
  remote.owner = owner;
  ++context_.counters.remote_gets;
  const TimeNs wait = !remote.waits ? 0 : get.deadline != never ? get.deadline - now : get.wait_ns;
  if (remote.computation) {
    remote.asking = ask_compute(number, remote, owner, wait, effects);
    return;
  }
  Asking asking{Asking::Kind::get, number, owner};
  asking.charge = get.charge;
  remote.asking = context_.requests.ask(
      std::move(asking), EntryKind::peer_get,
      deadline_after(remote.waits ? get.deadline : now, context_.options.ask_wait_ns), nullptr, inbox_bytes,
      [user = std::uint64_t{get.user}, pool_user = std::uint64_t{context_.table.user_of(get.pool)}, wait, number,
       reader = context_.directory.self(), text = definition.text,
       keys = get.keys](const AskedMemory& memory, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerGet{user, pool_user, wait, number, memory.inbox, reader, text, keys.first, keys.second},
                     payload);
      },
      effects);
}

void Gets::give_up(std::uint64_t number, TimeNs now, Effects& effects) {
  RemoteGet over = gets_.take(number);
  if (over.get.wait_ns != 0 && now >= over.get.deadline && over.last.code != Error::denied)
    over.last.code = Error::timeout;
  if (over.copied) return over.copied(over.owner, tl::unexpected(over.last), over.unsure, now, effects);
  PoolContext::refuse(over.get.channel, over.get.ticket, over.last, effects);
}

// It has no receiver any more. A transfer under way is answered, and the asking member releases it.
void Gets::cancel(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PoolCancel asked{};
  if (!wire::decode(request.payload, asked)) return;
  const auto end = [&](const FrameTable::Get& get) {
    PoolContext::refuse(get.channel, get.ticket,
                        {Error::cancelled, fmt::format("object ({}, {}) of pool \"{}\" is no longer wanted",
                                                       brief(get.keys.first), brief(get.keys.second), get.pool)},
                        effects);
  };
  for (const FrameTable::Get& get : context_.table.take_waiting(channel, false, asked.ticket)) end(get);
  if (computes_ != nullptr) computes_->cancel_request(channel, asked.ticket, effects);
  for (const std::uint64_t number : gets_.of_request(channel, asked.ticket)) {
    if (gets_.at(number).fetched) continue;
    const RemoteGet remote = gets_.take(number);
    cancel_at_owner(number, remote, now, effects);
    end(remote.get);
  }
}

// It waits or computes there; fetches do not wait.
void Gets::cancel_at_owner(std::uint64_t number, const RemoteGet& remote, TimeNs now, Effects& effects) {
  if (remote.asking == 0 || remote.fetched) return;
  context_.requests.cancel(remote.owner,
                           remote.computation ? wire::PeerCancel::What::computation : wire::PeerCancel::What::get,
                           number, remote.get.charge, deadline_after(now, context_.options.ask_wait_ns), effects);
}

void Gets::on_answer(std::uint64_t number, Result<Answer> answer, TimeNs now, Effects& effects) {
  RemoteGet* const asked = gets_.find(number);
  if (asked == nullptr) return;
  if (asked->tell) return on_part_answer(number, std::move(answer), now, effects);
  RemoteGet& remote = *asked;
  remote.asking = 0;
  Status status;
  FramePtr frame;
  if (!answer) {
    status = tl::unexpected(std::move(answer).error());
  } else if (remote.computation && answer->kind == wire::ReplyKind::done) {
    wire::Done done{};
    const FrameTable::Get get = gets_.take(number).get;
    status = wire::decode(answer->payload, done);
    if (status)
      effects.push_back(service::ReplyEffect{get.channel, get.ticket, done});
    else
      PoolContext::refuse(get.channel, get.ticket, std::move(status).error(), effects);
    return;
  } else {
    wire::Got got{};
    status = answer->kind == wire::ReplyKind::got
                 ? wire::decode(answer->payload, got)
                 : Status(fail(Error::protocol, "member {} answered a get with reply kind {}", remote.owner,
                               static_cast<int>(answer->kind)));
    if (status) {
      auto made = frame_of(remote, got, answer->inbox);
      if (made)
        frame = std::move(*made);
      else
        status = tl::unexpected(std::move(made).error());
    }
  }
  if (frame) {
    const RemoteGet over = gets_.take(number);
    if (over.copied) return over.copied(over.owner, std::move(frame), over.unsure, now, effects);
    return context_.table.answer(over.get, frame, effects);
  }
  const Error said = status.error().code;
  remote.note(std::move(status).error());
  const bool elsewhere = remote.computation ? may_compute_elsewhere(remote, said)
                                            : remote.copied || said == Error::io || PoolContext::may_pass(said);
  if (remote.fetched || !elsewhere ||
      (said == Error::timeout && remote.get.wait_ns != 0 && now >= remote.get.deadline)) {
    PoolContext::refuse(remote.get.channel, remote.get.ticket, remote.last, effects);
    gets_.take(number);
    return;
  }
  remote.tried.push_back(remote.owner);
  ask_next(number, now, effects);
}

void Gets::fetch(FrameTable::Get get, std::string member, EntryKind kind, TimeNs deadline, Compose compose,
                 Effects& effects) {
  if (Status may = context_.table.charge(get); !may)
    return PoolContext::refuse(get.channel, get.ticket, std::move(may).error(), effects);
  const std::uint64_t number = context_.numbers.take();
  RemoteGet& remote = gets_.add(number, {.get = std::move(get), .owner = std::move(member), .fetched = true});
  Asking asking{Asking::Kind::get, number, remote.owner};
  asking.charge = remote.get.charge;
  remote.asking = context_.requests.ask(
      std::move(asking), kind, deadline, nullptr, inbox_bytes,
      [compose = std::move(compose), number](const AskedMemory& memory, std::vector<std::byte>& payload) {
        compose(memory, number, payload);
      },
      effects);
}

Result<FramePtr> Gets::frame_of(const RemoteGet& remote, const wire::Got& got, Bytes inbox) {
  context_.counters.remote_bytes += got.length;
  if (got.how == wire::Got::How::delivered) {
    if (!remote.delivered)
      return fail(Error::protocol, "member {} answered that it had delivered an object, but no object came",
                  remote.owner);
    return remote.delivered;
  }
  if (got.how != wire::Got::How::pushed || got.length > inbox.size())
    return fail(Error::protocol, "member {} has pushed {} bytes to an inbox of {}", remote.owner, got.length,
                inbox.size());
  auto frame = std::make_shared<service::Frame>();
  OFP_ASSIGN(frame->buffer, buffers_->take(got.length, remote.get.user));
  if (got.length > 0) std::memcpy(frame->buffer.data(), inbox.data(), got.length);
  frame->bytes = got.length;
  frame->rows = got.rows;
  frame->arrow = got.arrow;
  return frame;
}

// Members changed: requests to a former owner are sent to a present one.
void Gets::on_members(TimeNs now, Effects& effects) {
  const auto is_owner = [&](const FrameTable::Get& get, const std::string& member) {
    const Definition* const known = context_.directory.known(get.pool);
    if (known == nullptr) return false;
    const std::vector<std::string> all = Directory::owners(*known, get.keys.first);
    return std::ranges::find(all, member) != all.end();
  };
  std::vector<std::uint64_t> again;
  for (const auto& [number, planned] : gets_.all()) {
    RemoteGet& remote = gets_.at(number);
    if (remote.fetched) continue;
    if (remote.asking != 0 && is_owner(remote.get, remote.owner)) continue;
    // Its function may be running: a living member answers, or reports that the computation does not wait for objects.
    if (remote.asking != 0 && remote.computation && context_.directory.is_alive(remote.owner)) continue;
    if (remote.asking != 0) context_.requests.forget(std::exchange(remote.asking, 0));
    remote.ask_all_again();
    remote.waits = false;
    again.push_back(number);
  }
  for (FrameTable::Get& get : context_.table.take_waiting([&](const FrameTable::Get& get) {
         const Definition* const known = context_.directory.known(get.pool);
         return !get.of_member && known != nullptr && context_.directory.is_elsewhere(*known) &&
                !is_owner(get, context_.directory.self());
       })) {
    const std::uint64_t number = context_.numbers.take();
    gets_.add(number, {.get = std::move(get)});
    again.push_back(number);
  }
  if (computes_ != nullptr) {
    for (Computes::Waiting& each : computes_->take_waiting([&](const FrameTable::Get& get) {
           const Definition* const known = context_.directory.known(get.pool);
           return known != nullptr && context_.directory.is_elsewhere(*known) &&
                  !is_owner(get, context_.directory.self());
         })) {
      if (each.get.of_member) {
        PoolContext::refuse(
            each.get.channel, each.get.ticket,
            {Error::closed, fmt::format("row \"{}\" lies on other members now", brief(each.get.keys.first))}, effects);
        continue;
      }
      const std::uint64_t number = context_.numbers.take();
      gets_.add(number, {.get = std::move(each.get), .computation = std::move(each.computation)});
      again.push_back(number);
    }
  }
  for (const std::uint64_t number : again) ask_next(number, now, effects);
}

// ---- computations

void Gets::compute(ChannelNumber channel, uid_t user, const channel::Entry& request, bool local, TimeNs now,
                   Effects& effects) {
  wire::PoolCompute asked{};
  if (auto status = wire::decode(request.payload, asked); !status)
    return PoolContext::refuse(channel, request.ticket, std::move(status).error(), effects);
  FrameTable::Get get{.channel = channel,
                      .ticket = request.ticket,
                      .user = user,
                      .pool = std::string(asked.pool.substr(0, asked.pool.find('?'))),
                      .keys = {std::string(asked.row_key), std::string(asked.column_key)},
                      .wait_ns = asked.wait_ns,
                      .deadline = deadline_after(now, asked.wait_ns),
                      .asked_at = now};
  if (computes_ == nullptr)
    return PoolContext::refuse(channel, request.ticket, {Error::unsupported, "this agent computes nothing"}, effects);
  if (Status may = context_.table.charge(get, bytes_beside_keys(asked)); !may)
    return PoolContext::refuse(channel, request.ticket, std::move(may).error(), effects);
  if (local) return computes_->begin(std::move(get), computation_of(asked), now, effects);
  RemoteGet remote;
  remote.get = std::move(get);
  remote.computation = computation_of(asked);
  remote.last = {Error::not_found, fmt::format("there is no pool \"{}\"", remote.get.pool)};
  const std::uint64_t number = context_.numbers.take();
  gets_.add(number, std::move(remote));
  ask_next(number, now, effects);
}

// The owner waits for the objects. Only it knows the function's time limit, unless the program set one.
std::uint64_t Gets::ask_compute(std::uint64_t number, const RemoteGet& remote, const std::string& owner,
                                std::int64_t wait_ns, Effects& effects) {
  const TimeNs deadline = wait_ns == 0 ? never : deadline_after(remote.get.deadline, context_.options.ask_wait_ns);
  Asking asking{Asking::Kind::get, number, owner};
  asking.charge = remote.get.charge;
  return context_.requests.ask(
      std::move(asking), EntryKind::peer_compute, deadline, nullptr, inbox_bytes,
      [user = std::uint64_t{remote.get.user}, owner = std::uint64_t{context_.table.user_of(remote.get.pool)}, wait_ns,
       number, reader = context_.directory.self(), text = context_.directory.text_of(remote.get.pool),
       keys = remote.get.keys, what = remote.computation](const AskedMemory& memory, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerCompute{user, owner, wait_ns, number, memory.inbox, reader, text, keys.first,
                                       keys.second, what->stores, what->plugin, what->function, what->result_row,
                                       what->result_column, what->arguments},
                     payload);
      },
      effects);
}

Status Gets::serve_compute(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerCompute asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  OFP_TRY(check_not_reserved(asked.pool));
  OFP_TRY(context_.directory.may_be_named(asked.pool));
  if (computes_ == nullptr) return fail(Error::unsupported, "this agent computes nothing");
  OFP_ASSIGN(
      const Definition* const definition,
      context_.directory.define_of_member(asked.pool, asked.owner, asked.user, Directory::Access::read, now, effects));
  FrameTable::Get get{.channel = channel,
                      .ticket = request.ticket,
                      .user = static_cast<uid_t>(asked.user),
                      .pool = definition->name.name,
                      .keys = {std::string(asked.row_key), std::string(asked.column_key)},
                      .of_member = true,
                      .inbox = asked.inbox,
                      .reader = std::string(asked.reader),
                      .delivery = asked.delivery,
                      .wait_ns = asked.wait_ns,
                      .deadline = deadline_after(now, asked.wait_ns),
                      .asked_at = now};
  OFP_TRY(context_.table.charge(get, bytes_beside_keys(asked)));
  computes_->begin(std::move(get), computation_of(asked), now, effects);
  return {};
}

// A failed function is not called again: another owner would fail alike, or the effect would happen twice. Only
// requests without an answer, or for rows at another member, are repeated.
bool Gets::may_compute_elsewhere(const RemoteGet& remote, Error said) noexcept {
  switch (said) {
    case Error::peer_lost:
    case Error::closed:
      return true;
    case Error::not_found:
      return remote.get.wait_ns == 0;
    default:
      return false;
  }
}

// ---- parts of queries, and copies

void Gets::fetch_part(std::string member, uid_t user, EntryKind kind, TimeNs deadline, std::vector<std::byte> body,
                      Compose compose, QueryMembers::Fetched fetched, Effects& effects) {
  ++context_.counters.remote_gets;
  const std::uint64_t number = context_.numbers.take();
  RemoteGet part{.owner = std::move(member), .fetched = true, .tell = std::move(fetched)};
  part.get.user = user;
  RemoteGet& remote = gets_.add(number, std::move(part));
  // The member's own deadline comes first: its error is more specific.
  remote.asking = context_.requests.ask(
      {Asking::Kind::get, number, remote.owner}, kind,
      deadline == never ? never : deadline_after(deadline, context_.options.ask_wait_ns), nullptr, inbox_bytes,
      [compose = std::move(compose), number](const service::AskedMemory& memory, std::vector<std::byte>& payload) {
        compose(memory, number, payload);
      },
      effects, std::move(body));
}

void Gets::on_part_answer(std::uint64_t number, Result<Answer> answer, TimeNs now, Effects& effects) {
  const RemoteGet remote = gets_.take(number);
  const auto reply = [&]() -> Result<QueryMembers::Reply> {
    if (!answer) return tl::unexpected(std::move(answer).error());
    if (answer->kind == wire::ReplyKind::done) {
      wire::Done done{};
      OFP_TRY(wire::decode(answer->payload, done));
      return QueryMembers::Reply{nullptr, done.value};
    }
    if (answer->kind != wire::ReplyKind::got)
      return fail(Error::protocol, "member {} answered a query with reply kind {}", remote.owner,
                  static_cast<int>(answer->kind));
    wire::Got got{};
    OFP_TRY(wire::decode(answer->payload, got));
    OFP_ASSIGN(FramePtr frame, frame_of(remote, got, answer->inbox));
    return QueryMembers::Reply{std::move(frame), 0};
  };
  remote.tell(reply(), now, effects);
}

void Gets::fetch_copy(const RecordPtr& record, RemoteGet::Copied copied, TimeNs now, Effects& effects) {
  const std::uint64_t number = context_.numbers.take();
  gets_.add(number, {.get = {.user = record->pool_user,
                             .pool = record->pool.substr(0, record->pool.find('?')),
                             .keys = {record->row, record->column}},
                     .copied = std::move(copied),
                     .tried = {context_.directory.self()}});
  ask_next(number, now, effects);
}

void Gets::on_unreadable(FrameTable::Get get, Failure why, TimeNs now, Effects& effects) {
  log(LogLevel::error, "{}", why.message);
  const Definition* const known = context_.directory.known(get.pool);
  if (get.of_member || known == nullptr || known->members.size() < 2)
    return PoolContext::refuse(get.channel, get.ticket, std::move(why), effects);  // a member asks another owner
  const std::uint64_t number = context_.numbers.take();
  RemoteGet remote{.get = std::move(get), .unreadable = true};
  remote.note(std::move(why));
  gets_.add(number, std::move(remote));
  ask_next(number, now, effects);
}

// ---- of other members

Status Gets::serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerGet get{};
  OFP_TRY(wire::decode(request.payload, get));
  OFP_TRY(context_.directory.may_be_named(get.pool));
  OFP_ASSIGN(const Definition* const definition,
             context_.directory.define_of_member(get.pool, get.owner, get.user, Directory::Access::read, now, effects));
  ++context_.counters.served_gets;
  context_.table.get({.channel = channel,
                      .ticket = request.ticket,
                      .user = static_cast<uid_t>(get.user),
                      .pool = definition->name.name,
                      .keys = {std::string(get.row_key), std::string(get.column_key)},
                      .of_member = true,
                      .inbox = get.inbox,
                      .reader = std::string(get.reader),
                      .delivery = get.delivery,
                      .wait_ns = get.wait_ns,
                      .deadline = deadline_after(now, get.wait_ns),
                      .asked_at = now},
                     effects);
  return {};
}

Status Gets::serve_cancel(ChannelNumber channel, const channel::Entry& request, Effects& effects) {
  wire::PeerCancel cancelled{};
  OFP_TRY(wire::decode(request.payload, cancelled));
  if (cancelled.what != wire::PeerCancel::What::get) {
    if (computes_ != nullptr) computes_->cancel(channel, cancelled.number, effects);
  } else {
    for (const FrameTable::Get& get : context_.table.take_waiting(channel, true, cancelled.number))
      PoolContext::refuse(get.channel, get.ticket, {Error::cancelled, "the object is no longer wanted"}, effects);
  }
  effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{0}});
  return {};
}

void Gets::deliver(const FrameTable::Get& get, const FramePtr& frame, TimeNs now, Effects& effects) {
  context_.counters.served_bytes += frame->bytes;
  context_.requests.ask(
      {Asking::Kind::deliver, 0, get.reader, get, frame}, EntryKind::peer_deliver,
      deadline_after(now, context_.options.put_wait_ns), frame, 0,
      [delivery = get.delivery, rows = frame->rows, arrow = frame->arrow, bytes = frame->bytes](
          const AskedMemory& memory, std::vector<std::byte>& payload) {
        wire::PeerDeliver message{delivery, rows, arrow, memory.offer, memory.bytes};
        message.object.length = bytes;
        wire::encode(message, payload);
      },
      effects);
}

void Gets::on_delivered(const FrameTable::Get& get, const service::Frame& frame, const Status& status,
                        Effects& effects) {
  if (!status) return PoolContext::refuse(get.channel, get.ticket, status.error(), effects);
  effects.push_back(ReplyEffect{get.channel, get.ticket,
                                wire::Got{.how = wire::Got::How::delivered,
                                          .arrow = frame.arrow,
                                          .lease = 0,
                                          .length = frame.bytes,
                                          .rows = frame.rows}});
}

void Gets::on_channel_closed(ChannelNumber channel, TimeNs now, Effects& effects) {
  for (const std::uint64_t number : gets_.of_channel(channel))
    cancel_at_owner(number, gets_.take(number), now, effects);
}

void Gets::on_time(TimeNs now, Effects& effects) {
  std::vector<std::uint64_t> ready = gets_.take_due(now);
  std::ranges::sort(ready);
  for (const std::uint64_t number : ready) ask_next(number, now, effects);
}

void Gets::add_pools(std::set<std::string_view>& names) const {
  for (const auto& [number, remote] : gets_.all()) names.insert(remote.get.pool);
}

}  // namespace offpath::pool
