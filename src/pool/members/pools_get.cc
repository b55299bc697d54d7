// Gets of programs: from what is here, or from an owner.
#include <algorithm>
#include <cstring>
#include <utility>

#include "pool/directory/placement.h"
#include "pool/members/pools.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::AskedMemory;
using wire::EntryKind;

namespace {

// An object up to so many bytes comes with its answer; a larger one is pulled.
constexpr std::uint32_t inbox_bytes = 16 << 10;

}  // namespace

void Pools::get(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PoolGet asked{};
  if (auto status = wire::decode(request.payload, asked); !status)
    return PoolContext::refuse(channel, request.ticket, std::move(status).error(), effects);
  const auto name = parse_pool_name(asked.pool);
  if (!name) return PoolContext::refuse(channel, request.ticket, name.error(), effects);
  RemoteGet remote;
  remote.get = {.channel = channel,
                .ticket = request.ticket,
                .user = channels_.at(channel),
                .pool = name->name,
                .keys = {std::string(asked.row_key), std::string(asked.column_key)},
                .wait_ns = asked.wait_ns,
                .deadline = deadline_after(now, asked.wait_ns)};
  remote.last = {Error::not_found, fmt::format("there is no pool \"{}\"", name->name)};
  if (Status may = context_.table.charge(remote.get); !may)
    return PoolContext::refuse(channel, request.ticket, std::move(may).error(), effects);
  const std::uint64_t number = context_.numbers.take();
  gets_.add(number, std::move(remote));
  ask_next(number, now, effects);
}

// The next of the row's owners, and of those before members changed: its object may be on the way between them.
void Pools::ask_next(std::uint64_t number, TimeNs now, Effects& effects) {
  RemoteGet* const known_get = gets_.find(number);
  if (known_get == nullptr) return;
  RemoteGet& remote = *known_get;
  const FrameTable::Get& get = remote.get;
  gets_.set_due(number, never);
  const bool wanted_later = get.wait_ns != 0;
  const auto give_up = [&] {
    if (wanted_later && remote.last.code != Error::denied)
      remote.last.code = now >= get.deadline ? Error::timeout : remote.last.code;
    if (remote.repairs)
      end_repair(remote.repairs, tl::unexpected(remote.last), remote.unsure);
    else
      PoolContext::refuse(get.channel, get.ticket, remote.last, effects);
    gets_.take(number);
  };
  if (wanted_later && now >= get.deadline) return give_up();
  const Definition* const known = context_.directory.known(get.pool);
  if (known == nullptr) {
    if (!wanted_later) return give_up();
    return gets_.await_pool(number);
  }
  const Definition& definition = *known;
  std::vector<std::string> candidates = Directory::owners(definition, get.keys.first);
  // All owners are asked before one is waited at: it may have been the last to come.
  remote.waits |= wanted_later && (candidates.size() < 2 || remote.computation);
  const bool waits = remote.waits;
  const auto is_here = [&] {
    return remote.computation ? context_.table.holds_row(get.pool, get.keys.first)
                              : context_.table.holds(get.pool, get.keys);
  };
  if (!waits || is_here())
    for (std::string& before :
         owners_of(definition.name.policy, definition.name.options.replicas, get.keys.first, definition.before))
      if (context_.directory.is_alive(before) && std::ranges::find(candidates, before) == candidates.end())
        candidates.push_back(std::move(before));
  for (const std::string& candidate : candidates) {
    if (std::ranges::find(remote.tried, candidate) != remote.tried.end()) continue;
    if (candidate == context_.directory.self()) {
      if (!remote.repairs && (is_here() || waits)) {
        RemoteGet here = gets_.take(number);
        if (here.computation) return computes_->begin(std::move(here.get), std::move(here.computation), now, effects);
        return context_.table.get(std::move(here.get), effects);
      }
      remote.tried.push_back(context_.directory.self());
      remote.note({Error::not_found, fmt::format("pool \"{}\" has no object ({}, {})", get.pool, brief(get.keys.first),
                                                 brief(get.keys.second))});
      continue;
    }
    remote.owner = candidate;
    ++context_.counters.remote_gets;
    const TimeNs wait = !waits ? 0 : get.deadline != never ? get.deadline - now : get.wait_ns;
    if (remote.computation) {
      remote.asking = ask_compute(number, remote, candidate, wait, inbox_bytes, effects);
      return;
    }
    Asking asking{Asking::Kind::get, number, candidate};
    asking.charge = get.charge;
    remote.asking = context_.requests.ask(
        std::move(asking), EntryKind::peer_get,
        waits ? deadline_after(get.deadline, context_.options.ask_wait_ns)
              : deadline_after(now, context_.options.ask_wait_ns),
        nullptr, inbox_bytes,
        [user = std::uint64_t{get.user}, owner = std::uint64_t{context_.table.user_of(get.pool)}, wait, number,
         reader = context_.directory.self(), text = definition.text,
         keys = get.keys](const AskedMemory& memory, std::vector<std::byte>& payload) {
          wire::encode(wire::PeerGet{user, owner, wait, number, memory.inbox, reader, text, keys.first, keys.second},
                       payload);
        },
        effects);
    return;
  }
  if (candidates.empty())
    remote.last = {Error::not_found,
                   fmt::format("pool \"{}\": no member that lives is one of its members", definition.text)};
  if (!wanted_later) return give_up();
  remote.ask_all_again();
  if (!std::exchange(remote.waits, true) && !candidates.empty()) return ask_next(number, now, effects);
  gets_.set_due(number, std::min(now + context_.options.retry_ns, get.deadline));
}

// Nobody waits for it any more. What is on its way is answered, and given back by who asked.
void Pools::cancel_get(ChannelNumber channel, const channel::Entry& request, Effects& effects) {
  wire::PoolCancel asked{};
  if (!wire::decode(request.payload, asked)) return;
  const auto end = [&](const FrameTable::Get& get) {
    PoolContext::refuse(get.channel, get.ticket,
                        {Error::cancelled, fmt::format("object ({}, {}) of pool \"{}\" is not wanted any more",
                                                       brief(get.keys.first), brief(get.keys.second), get.pool)},
                        effects);
  };
  for (const FrameTable::Get& get : context_.table.take_waiting(channel, false, asked.ticket)) end(get);
  if (computes_ != nullptr) computes_->cancel_request(channel, asked.ticket, effects);
  for (const std::uint64_t number : gets_.of_request(channel, asked.ticket)) {
    if (gets_.at(number).fetched) continue;
    const RemoteGet remote = gets_.take(number);
    cancel_at_owner(number, remote, effects);
    end(remote.get);
  }
}

// It waits there, or computes; what is fetched does not wait.
void Pools::cancel_at_owner(std::uint64_t number, const RemoteGet& remote, Effects& effects) {
  if (remote.asking == 0 || remote.fetched) return;
  context_.requests.cancel(
      remote.owner, remote.computation ? wire::PeerCancel::What::computation : wire::PeerCancel::What::get, number,
      remote.get.charge, deadline_after(context_.now, context_.options.ask_wait_ns), effects);
}

void Pools::on_get_answer(std::uint64_t number, Result<Answer> answer, TimeNs now, Effects& effects) {
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
    if (over.repairs) return repair(over.repairs, over.owner, std::move(frame), now, effects);
    return context_.table.answer(over.get, frame, effects);
  }
  const Error said = status.error().code;
  remote.note(std::move(status).error());
  const bool elsewhere = remote.computation ? may_compute_elsewhere(remote, said)
                                            : remote.repairs || said == Error::io || PoolContext::may_pass(said);
  if (remote.fetched || !elsewhere ||
      (said == Error::timeout && remote.get.wait_ns != 0 && now >= remote.get.deadline)) {
    PoolContext::refuse(remote.get.channel, remote.get.ticket, remote.last, effects);
    gets_.take(number);
    return;
  }
  remote.tried.push_back(remote.owner);
  ask_next(number, now, effects);
}

void Pools::fetch(FrameTable::Get get, std::string member, EntryKind kind, TimeNs deadline, ComposeFetch compose,
                  TimeNs now, Effects& effects) {
  context_.now = now;
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

void Pools::answer(const FrameTable::Get& get, const FramePtr& frame, TimeNs now, Effects& effects) {
  context_.now = now;
  context_.table.answer(get, frame, effects);
}

Result<FramePtr> Pools::frame_of(const RemoteGet& remote, const wire::Got& got, Bytes inbox) {
  context_.counters.remote_bytes += got.length;
  if (got.how == wire::Got::How::delivered) {
    if (!remote.delivered)
      return fail(Error::protocol, "member {} has answered that it delivered an object, and has not", remote.owner);
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

// Members changed: what was asked of one that is no owner any more is asked of one that is.
void Pools::replan_gets(TimeNs now, Effects& effects) {
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
    // Its function may be running: a member that lives answers, or says that it waits for nothing any more.
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

}  // namespace offpath::pool
