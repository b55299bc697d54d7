#include "host/requests/requests.h"

#include <algorithm>
#include <utility>

#include "channel/interruption.h"
#include "wire/messages/pool_messages.h"

namespace offpath::host {

using channel::Reply;

namespace {

constexpr int arm_tries = 4;  // each time something has come meanwhile

// Without room it stays as it is.
bool is_full(const Failure& failure) { return failure.code == Error::would_block; }

}  // namespace

Status Requests::compose(UnderWay& request) {
  request.payload.clear();
  request.ticket = 0;
  OFP_ASSIGN(request.kind, request.operation->compose(request.payload));
  return {};
}

Status Requests::post(UnderWay& request) {
  auto ticket = end_.ask(request.kind, request.payload);
  if (ticket)
    request.ticket = *ticket;
  else if (!is_full(ticket.error()))
    return tl::unexpected(std::move(ticket).error());
  return {};
}

Result<Requests::UnderWayPtr> Requests::start(std::unique_ptr<Operation> operation, ofp_request* handle) {
  (void)look_once(nullptr);
  auto request = std::make_shared<UnderWay>();
  request->operation = std::move(operation);
  request->handle = handle;
  const auto begin = [&]() -> Status {
    OFP_TRY(compose(*request));
    const std::lock_guard lock(mutex_);
    // Those before it come first.
    const bool waits = std::ranges::any_of(
        under_way_, [](const auto& each) { return !each.second->over && each.second->ticket == 0; });
    if (!waits) OFP_TRY(post(*request));
    request->number = ++last_number_;
    under_way_.emplace(request->number, request);
    return {};
  };
  if (Status begun = begin(); !begun) {
    request->operation->on_failed();
    return tl::unexpected(std::move(begun).error());
  }
  return request;
}

void Requests::end(UnderWay& request, Status outcome) {
  request.over = true;
  request.outcome = std::move(outcome);
  if (!request.outcome && request.operation != nullptr) request.operation->on_failed();
}

// Its requests under way are answered sooner or later, and it has to stay until then.
void Requests::give_up(UnderWay& request) {
  if (request.ticket == 0) return;
  request.operation->on_failed();
  const bool told = !request.operation->cancellable();
  withdrawn_.push_back({std::move(request.operation), request.ticket, told});
}

void Requests::step(UnderWay& request) {
  const auto go_on = [&]() -> Status {
    if (request.ticket == 0) return post(request);
    std::optional<Reply> reply = end_.take_reply(request.ticket);
    if (!reply) return {};
    request.ticket = 0;  // nothing of it is under way
    OFP_ASSIGN(const Reply good, channel::unfailed(std::move(*reply)));
    OFP_ASSIGN(request.over, request.operation->take(good));
    if (request.over) return {};
    OFP_TRY(compose(request));
    return post(request);
  };
  if (Status status = go_on(); !status) return end(request, std::move(status));
  if (request.over || end_.now() < request.operation->patience) return;
  give_up(request);
  end(request, fail(Error::timeout, "the agent has not answered in time"));
}

void Requests::sweep(Operations& gone) {
  std::erase_if(withdrawn_, [&](Withdrawn& each) {
    std::optional<Reply> reply = end_.take_reply(each.ticket);
    if (reply) {
      if (auto good = channel::unfailed(std::move(*reply)); good) (void)each.operation->take(*good);
      gone.push_back(std::move(each.operation));
      return true;
    }
    if (!each.told) {
      std::vector<std::byte> payload;
      wire::encode(wire::PoolCancel{each.ticket}, payload);
      each.told = end_.post(wire::EntryKind::pool_cancel, payload, 0).has_value();
    }
    return false;
  });
}

// Ended requests with a callback move to `calls`; those without stay.
void Requests::look_once(std::vector<Call>* calls) {
  Operations gone;  // releases its memory without the lock
  const std::lock_guard lock(mutex_);
  if (under_way_.empty() && withdrawn_.empty()) return;
  const Status open = end_.take_in();
  bool full = false;
  for (const auto& [number, request] : under_way_) {
    if (!request->over && !open)
      end(*request, open);
    else if (!request->over && !(full && request->ticket == 0))
      step(*request);
    full |= !request->over && request->ticket == 0;
    if (calls != nullptr && request->over && request->callback != nullptr)
      calls->push_back({number, request->callback, request->user, request->handle});
  }
  if (calls != nullptr)
    for (const Call& each : *calls) under_way_.erase(each.number);
  if (open) return sweep(gone);
  for (Withdrawn& each : withdrawn_) gone.push_back(std::move(each.operation));
  withdrawn_.clear();
}

void Requests::look_and_call() {
  std::vector<Call> calls;
  look_once(&calls);
  for (const Call& each : calls) each.callback(each.user, each.handle);
}

void Requests::look() {
  look_and_call();
  arm();
}

// For the answer to one of these, or without any for room. Why the channel was lost, look() finds out.
Status Requests::sleep(std::span<const std::uint64_t> tickets, std::uint64_t bytes, TimeNs until) {
  Status slept;
  if (tickets.empty())
    slept = end_.wait_room(bytes, until);
  else if (auto found = end_.wait_reply(tickets, until); !found)
    slept = tl::unexpected(std::move(found).error());
  return channel::is_interrupted(slept) ? slept : Status{};
}

Status Requests::wait(const UnderWayPtr& request, TimeNs deadline) {
  while (true) {
    look_and_call();
    std::uint64_t ticket = 0, bytes = 0;
    TimeNs until = never;
    {
      const std::lock_guard lock(mutex_);
      if (request->over) {
        under_way_.erase(request->number);
        return request->outcome;
      }
      ticket = request->ticket;
      bytes = request->payload.size();
      until = std::min(deadline, request->operation->patience);
    }
    if (end_.now() >= deadline) {
      if (!end_.poll_beside()) continue;  // lost: all of them are over
      return fail(Error::would_block, "the request is still under way");
    }
    OFP_TRY(sleep(ticket != 0 ? std::span(&ticket, 1) : std::span<std::uint64_t>(), bytes, until));
  }
}

Result<Operation*> Requests::ended(const UnderWay& request) {
  const std::lock_guard lock(mutex_);
  if (!request.over) return fail(Error::would_block, "the request is still under way");
  OFP_TRY(request.outcome);
  return request.operation.get();
}

Result<ofp_request*> Requests::next(TimeNs deadline) {
  while (true) {
    look_and_call();
    std::vector<std::uint64_t> tickets;
    std::uint64_t bytes = 0;
    TimeNs until = deadline;
    {
      const std::lock_guard lock(mutex_);
      if (under_way_.empty()) return fail(Error::not_found, "nothing is under way");
      for (const auto& [number, request] : under_way_) {
        if (request->over) return request->handle;
        if (request->ticket != 0)
          tickets.push_back(request->ticket);
        else
          bytes = request->payload.size();
        until = std::min(until, request->operation->patience);
      }
    }
    if (end_.now() >= deadline) {
      if (!end_.poll_beside()) continue;
      return fail(Error::would_block, "no request under way has been answered yet");
    }
    OFP_TRY(sleep(tickets, bytes, until));
  }
}

void Requests::call_back(const UnderWayPtr& request, void (*callback)(void* user, ofp_request* request), void* user) {
  bool over = false;
  {
    const std::lock_guard lock(mutex_);
    over = request->over;
    if (over)
      under_way_.erase(request->number);
    else
      request->callback = callback;
    request->user = user;
  }
  if (over)
    callback(user, request->handle);
  else
    arm();
}

// Arms the event descriptor for the next answer, if there is a callback, and for room, if requests wait for it.
void Requests::arm() {
  for (int i = 0; i < arm_tries; ++i) {
    bool calls = false, full = false;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [number, request] : under_way_) {
        calls |= request->callback != nullptr;
        full |= !request->over && request->ticket == 0;
      }
    }
    if (!calls) return;
    if (full) end_.arm_room();
    const bool armed = end_.arm_replies();
    look_and_call();  // another thread may have taken in an answer between the last look and the arming
    if (armed) return;
  }
}

void Requests::withdraw(const UnderWayPtr& request) {
  {
    const std::lock_guard lock(mutex_);
    under_way_.erase(request->number);
    request->callback = nullptr;
    if (!request->over) {
      give_up(*request);
      end(*request, fail(Error::cancelled, "the request is no longer wanted"));
    }
  }
  look_once(nullptr);
}

void Requests::close() { look_and_call(); }

}  // namespace offpath::host
