// Objects that are asked for now and come later.
#include <algorithm>
#include <vector>

#include "host/frame.h"
#include "host/stream.h"
#include "host/wants.h"

namespace offpath::host {

namespace {

constexpr TimeNs grace_ns = 2 * second_ns;  // for an agent that does not answer at all
constexpr TimeNs cancel_wait_ns = second_ns;  // for room in the ring: without, the want ends at its own time

}  // namespace

Result<std::uint64_t> Wants::ask(std::string_view pool, std::string_view row_key, std::string_view column_key, std::int64_t wait_ns,
                                 ofp_want* want) {
  sweep();
  const TimeNs deadline = deadline_after(end_.now(), wait_ns);
  std::vector<std::byte> request;
  wire::encode(wire::PoolGet{pool, row_key, column_key, wait_ns}, request);
  OFP_ASSIGN(const std::uint64_t number, end_.ask(wire::EntryKind::pool_get, request, deadline));
  const std::lock_guard lock(mutex_);
  asked_.emplace(number, Asked{deadline_after(deadline, grace_ns), want});
  return number;
}

Result<channel::Reply> Wants::take(std::uint64_t number, TimeNs deadline) {
  sweep();
  TimeNs patience = never;
  {
    const std::lock_guard lock(mutex_);
    patience = asked_.at(number).patience;
  }
  while (true) {
    auto answered = end_.wait_reply({&number, 1}, std::min(deadline, patience));
    const TimeNs now = end_.now();
    if (answered && !*answered && now < patience) {
      if (now < deadline) continue;  // that was another one's
      return fail(Error::would_block, "the object has not come yet");
    }
    if (answered && !*answered) {
      withdraw(number);
      return fail(Error::timeout, "the agent has not answered in time");
    }
    {
      const std::lock_guard lock(mutex_);
      asked_.erase(number);
    }
    if (!answered) return tl::unexpected(std::move(answered).error());
    return channel::unfailed(*end_.take_reply(number));
  }
}

Result<ofp_want*> Wants::next(TimeNs deadline) {
  while (true) {
    sweep();
    std::vector<std::uint64_t> numbers;
    TimeNs patience = never;
    {
      const std::lock_guard lock(mutex_);
      const TimeNs now = end_.now();
      for (const auto& [number, asked] : asked_) {
        if (asked.patience <= now) return asked.want;
        numbers.push_back(number);
        patience = std::min(patience, asked.patience);
      }
    }
    if (numbers.empty()) return fail(Error::not_found, "nothing is wanted");
    const auto answered = end_.wait_reply(numbers, std::min(deadline, patience));
    const std::lock_guard lock(mutex_);
    // A channel that is lost answers all of them.
    const auto at = asked_.find(answered ? answered->value_or(0) : numbers.front());
    if (at != asked_.end()) return at->second.want;
    if (end_.now() >= deadline) return fail(Error::would_block, "nothing of what is wanted has come yet");
  }
}

void Wants::withdraw(std::uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (asked_.erase(number) == 0) return;
    withdrawn_.insert(number);
  }
  std::vector<std::byte> request;
  wire::encode(wire::PoolCancel{number}, request);
  (void)end_.post(wire::EntryKind::pool_cancel, request, deadline_after(end_.now(), cancel_wait_ns));
  sweep();
}

void Wants::sweep() {
  const std::lock_guard lock(mutex_);
  if (withdrawn_.empty() || !end_.take_in()) return;
  std::erase_if(withdrawn_, [this](std::uint64_t number) {
    const auto reply = end_.take_reply(number);
    if (!reply) return false;
    PoolFrame::give_back(end_, *reply);
    return true;
  });
}

}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

struct ofp_want {
  ConnectionPtr connection;
  std::uint64_t number = 0;
  bool over = false;
  Status outcome{};
};

extern "C" {

int ofp_pool_want(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key, int64_t wait_ns, ofp_want** want,
                  ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(want, "want"));
    *want = nullptr;
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const std::string_view name, checked_key(pool, "the pool's name", wire::pool_bytes_max));
    if (name.empty()) return fail(Error::invalid, "no pool given; its name is like local:/particles");
    OFP_ASSIGN(const std::string_view row, checked_key(row_key, "the row key"));
    OFP_ASSIGN(const std::string_view column, checked_key(column_key, "the column key"));
    auto made = std::make_unique<ofp_want>();
    made->connection = channel->connection;
    OFP_ASSIGN(made->number, channel->connection->wants.ask(name, row, column, wait_ns < 0 ? -1 : wait_ns, made.get()));
    *want = made.release();
    return {};
  });
}

int ofp_want_wait(ofp_want* want, int64_t wait_ns, ofp_frame** frame, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(want, "want"));
    OFP_TRY(required(frame, "frame"));
    *frame = nullptr;
    OFP_TRY(want->connection->here());
    if (want->over) {
      OFP_TRY(want->outcome);
      return fail(Error::closed, "the want's object was given already");
    }
    auto reply = want->connection->wants.take(want->number, want->connection->deadline(wait_ns));
    if (!reply && reply.error().code == Error::would_block) return tl::unexpected(std::move(reply).error());
    want->over = true;
    auto got = reply ? PoolFrame::of_reply(want->connection, *reply) : tl::unexpected(std::move(reply).error());
    if (got && *got == nullptr) got = fail(Error::protocol, "the agent answered a get without an object");
    if (!got) {
      want->outcome = tl::unexpected(got.error());
      return want->outcome;
    }
    *frame = new ofp_frame{std::move(*got)};
    return {};
  });
}

int ofp_want_next(ofp_channel* channel, int64_t wait_ns, ofp_want** want, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(want, "want"));
    *want = nullptr;
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(*want, channel->connection->wants.next(channel->connection->deadline(wait_ns)));
    return {};
  });
}

void ofp_want_free(ofp_want* want) {
  if (want == nullptr) return;
  if (!want->over && want->connection->here()) want->connection->wants.withdraw(want->number);
  delete want;
}

}  // extern "C"
