#include "pool/compute/compute_service.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/files/file_bytes.h"
#include "frame/parse.h"
#include "wire/limits.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::ChannelNumber;
using service::Effects;
using service::FailEffect;
using service::ReplyEffect;

namespace {

constexpr TimeNs read_wait_ns = 30 * second_ns;  // for memory to read an input back into

std::string name_of(const Computation& what) { return fmt::format("{}.{}", what.plugin, what.function); }

Status copy_output(const plugin::Output& output, const service::Frame& frame) {
  Status read = read_all(output.memory.get(), frame.buffer.bytes(), 0);
  return read ? read : fail(read.error().code, "output \"{}\": {}", output.name, read.error().message);
}

}  // namespace

// The results of a job, held by the job and by its work until both have ended.
struct ComputeService::Copies {
  plugin::Outputs outputs;
  std::vector<FramePtr> frames;

  // The function sets the flag, so the output is parsed: only readable Arrow is stored as Arrow.
  [[nodiscard]] Status fill() {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      service::Frame& frame = *frames[i];
      OFP_TRY(copy_output(outputs[i], frame));
      outputs[i].memory = {};
      if (!outputs[i].arrow) continue;
      const auto view = frame::parse_frame(frame.buffer.bytes());
      if (!view)
        return fail(Error::function_failed, "output \"{}\" is marked as Arrow, but is not Arrow data: {}",
                    outputs[i].name, view.error().message);
      frame.arrow = true;
      frame.rows = static_cast<std::uint64_t>(view->rows);
    }
    return {};
  }
};

struct ComputeService::Work {
  enum class State { waiting, reading, calling, copying, storing } state = State::waiting;
  std::uint64_t number = 0;
  FrameTable::Get get;
  ComputationPtr what;
  std::optional<std::size_t> trigger;  // there is no asker
  std::optional<Trigger::Object> object;
  std::vector<QuerySource> inputs;  // while a job copies some of them
  std::shared_ptr<Copies> copies;
  std::size_t storing = 0;
  std::optional<Failure> failure;

  [[nodiscard]] std::uint64_t token() const noexcept { return service::token_of(service::ServiceId::compute, number); }
  [[nodiscard]] std::string why_waits(const Pools& pools) const {
    const std::string name = name_of(*what);
    switch (state) {
      case State::waiting:
        return fmt::format("{} waits for its object: {}", name, pools.table().describe_absence(get));
      case State::reading:
        return fmt::format("the object of {} is read from disk, or copied", name);
      case State::calling:
        return fmt::format("{} runs, or waits for a worker", name);
      case State::copying:
      case State::storing:
        return fmt::format("the outputs of {} are stored", name);
    }
    return name;
  }
};

ComputeService::ComputeService(Limits limits, std::shared_ptr<service::BufferCache> cache, Pools& pools,
                               std::function<bool(std::uint64_t)> room)
    : limits_(std::move(limits)),
      cache_(std::move(cache)),
      pools_(pools),
      room_(std::move(room)),
      triggers_(std::move(limits_.triggers)) {
  pools_.serve_computes(*this);
}

ComputeService::~ComputeService() = default;

ComputeService::Work* ComputeService::find(std::uint64_t token) {
  const auto at = works_.find(service::number_of(token));
  return at != works_.end() ? at->second.get() : nullptr;
}

// ---- from the request to the call

void ComputeService::begin(FrameTable::Get get, ComputationPtr computation, TimeNs now, Effects& effects) {
  ++counters_.asked;
  auto work = std::make_unique<Work>();
  work->number = next_number_++;
  work->get = std::move(get);
  work->what = std::move(computation);
  Work& begun = *works_.emplace(work->number, std::move(work)).first->second;
  by_name_.emplace(begun.get.channel, begun.get.of_member, begun.get.name(), begun.number);
  const Status may = may_wait(begun);
  begin_waiting(begun);
  if (!may) return fail_work(begun, may.error(), now, effects);
  // Checked before the function runs in vain.
  if (begun.what->stores && !begun.get.of_member) {
    const auto pool = pools_.admit(begun.get.pool, begun.get.user, effects);
    if (!pool) return fail_work(begun, pool.error(), now, effects);
    pools_.leave(*pool);
  }
  try_inputs(begun, now, effects);
}

Status ComputeService::may_wait(const Work& work) const {
  if (counters_.waiting >= limits_.waiting_max)
    return fail(Error::too_large, "{} computations are waiting for objects, which is the limit", limits_.waiting_max);
  const auto of_user = waiting_of_users_.find(work.get.user);
  const std::size_t user_max = limits_.waiting_max - limits_.waiting_max / 8;
  if (of_user != waiting_of_users_.end() && of_user->second >= user_max)
    return fail(Error::too_large, "{} computations of user {} are waiting for objects, which is the limit of each user",
                user_max, work.get.user);
  return {};
}

// Oldest requests first.
ListedGets ComputeService::waiting(TimeNs now) const {
  ListedGets found;
  for (const auto& [number, work] : works_) {
    const FrameTable::Get& get = work->get;
    if (work->trigger || get.asked_at > now - WaitsTold::silent_ns) continue;
    ++found.count;
    if (found.longest.size() == ListedGets::listed_max) continue;
    found.longest.push_back({.pool = get.pool,
                             .row = brief(get.keys.first),
                             .column = brief(get.keys.second),
                             .channel = get.channel,
                             .since = get.asked_at,
                             .what = "the computation",
                             .why = work->why_waits(pools_)});
  }
  return found;
}

void ComputeService::begin_waiting(Work& work) {
  work.state = Work::State::waiting;
  ++counters_.waiting;
  ++waiting_of_users_[work.get.user];
  by_row_.emplace(work.get.pool, work.get.keys.first, work.number);
}

void ComputeService::end_waiting(Work& work) {
  if (work.state != Work::State::waiting) return;
  work.state = Work::State::reading;
  --counters_.waiting;
  if (const auto of_user = waiting_of_users_.find(work.get.user); --of_user->second == 0)
    waiting_of_users_.erase(of_user);
  by_row_.erase({work.get.pool, work.get.keys.first, work.number});
  times_.erase(work.number);
  shown_.erase(work.number);
}

void ComputeService::try_inputs(Work& work, TimeNs now, Effects& effects) {
  auto inputs = pools_.row(work.get);
  if (inputs) return call(work, std::move(*inputs), effects);
  const bool may_come = inputs.error().code == Error::not_found && work.get.wait_ns != 0;
  if (!may_come) return fail_work(work, std::move(inputs).error(), now, effects);
  if (work.get.deadline <= now)
    return fail_work(work, {Error::timeout, std::move(inputs).error().message}, now, effects);
  times_.set(work.number, work.get.deadline);
}

void ComputeService::call(Work& work, std::vector<QuerySource> inputs, Effects& effects) {
  end_waiting(work);
  if (std::ranges::any_of(inputs, [](const QuerySource& each) { return each.frame->unread != nullptr; }))
    return read_inputs(work, std::move(inputs), effects);
  if (std::ranges::any_of(inputs, [](const QuerySource& each) { return each.frame->updatable; }))
    return copy_inputs(work, std::move(inputs), effects);
  work.state = Work::State::calling;
  ++counters_.calls;
  ++counters_.calling;
  counters_.inputs += inputs.size();
  auto asked = std::make_shared<plugin::Call>();
  asked->plugin = work.what->plugin;
  asked->function = work.what->function;
  asked->arguments = work.what->arguments;
  // Without a deadline of the caller, the plug-in's applies.
  if (work.get.wait_ns != 0) asked->deadline_ns = work.get.deadline;
  for (QuerySource& each : inputs) {
    const FramePtr& frame = each.frame;
    counters_.input_bytes += frame->bytes;
    asked->inputs.push_back({.row = std::move(each.row_key),
                             .column = std::move(each.column_key),
                             .arrow = frame->arrow,
                             .fd = frame->buffer.share(),
                             .bytes = frame->bytes,
                             .data = {frame->buffer.data(), frame->bytes},
                             .owner = frame});
  }
  effects.push_back(service::CallEffect{work.token(), std::move(asked)});
}

// Reads inputs on disk one after the other, then calls the function.
void ComputeService::read_inputs(Work& work, std::vector<QuerySource> inputs, Effects& effects) {
  work.state = Work::State::reading;
  const auto unread =
      std::ranges::find_if(inputs, [](const QuerySource& each) { return each.frame->unread != nullptr; });
  const FramePtr frame = unread->frame;
  const auto place = static_cast<std::size_t>(unread - inputs.begin());
  pools_.read_back(
      frame, read_wait_ns + pools_.now(),
      [this, token = work.token(), place, inputs = std::move(inputs)](Result<FramePtr> read, Effects& then) mutable {
        Work* const waiting = find(token);
        if (waiting == nullptr) return;  // cancelled
        if (!read) return fail_call(*waiting, std::move(read).error(), pools_.now(), then);
        inputs[place].frame = std::move(*read);
        call(*waiting, std::move(inputs), then);
      },
      effects);
}

// The user may update these objects while the function runs, so it gets copies.
void ComputeService::copy_inputs(Work& work, std::vector<QuerySource> inputs, Effects& effects) {
  work.state = Work::State::reading;
  std::vector<std::pair<FramePtr, FramePtr>> copies;  // from, to
  std::uint64_t bytes = 0;
  for (QuerySource& each : inputs) {
    if (!each.frame->updatable) continue;
    bytes += each.frame->bytes;
    if (!room_(bytes))
      return fail_call(work,
                       {Error::no_memory, fmt::format("there is no room for copies of {} bytes of inputs, which may be "
                                                      "updated in place",
                                                      bytes)},
                       pools_.now(), effects);
    auto buffer = cache_->take(each.frame->bytes, work.get.user);
    if (!buffer) return fail_call(work, std::move(buffer).error(), pools_.now(), effects);
    auto copy = std::make_shared<service::Frame>();
    copy->buffer = std::move(*buffer);
    copy->bytes = each.frame->bytes;
    copy->rows = each.frame->rows;
    copies.emplace_back(std::exchange(each.frame, copy), copy);
  }
  auto copy_all = [copies = std::move(copies)]() -> Status {
    for (const auto& [from, to] : copies)
      if (from->bytes > 0) std::memcpy(to->buffer.data(), from->buffer.data(), from->bytes);
    return {};
  };
  if (bytes <= limits_.copied_bytes_max) {
    (void)copy_all();
    return call(work, std::move(inputs), effects);
  }
  work.inputs = std::move(inputs);
  effects.push_back(service::JobEffect{work.token(), std::move(copy_all)});
}

void ComputeService::on_shown(const std::string& pool, const FrameTable::Keys& keys, const FramePtr& frame,
                              bool first) {
  if (first) triggers_.on_shown(pool, keys, frame);
  // Looked at as soon as the table may be asked.
  for (auto at = by_row_.lower_bound({pool, keys.first, 0});
       at != by_row_.end() && std::get<0>(*at) == pool && std::get<1>(*at) == keys.first; ++at) {
    const std::uint64_t number = std::get<2>(*at);
    const std::string& column = works_.at(number)->get.keys.second;
    if (column.empty() || column == keys.second) shown_.insert(number);
  }
}

std::vector<Computes::Waiting> ComputeService::take_waiting(const std::function<bool(const FrameTable::Get&)>& chosen) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, work] : works_)
    if (work->state == Work::State::waiting && chosen(work->get)) numbers.push_back(number);
  std::vector<Waiting> taken;
  for (const std::uint64_t number : numbers) {
    const std::unique_ptr<Work> work = take(number);
    taken.push_back({std::move(work->get), std::move(work->what)});
  }
  return taken;
}

// ---- from the outputs to the answer

void ComputeService::on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now, Effects& effects) {
  Work* const work = find(token);
  if (work == nullptr) return;  // cancelled
  OFP_ASSERT(work->state == Work::State::calling);
  --counters_.calling;
  work->state = Work::State::copying;
  if (!outcome) return fail_call(*work, std::move(outcome).error(), now, effects);
  if (Status usable = check_outputs(*work, *outcome); !usable)
    return fail_call(*work, std::move(usable).error(), now, effects);
  auto copies = std::make_shared<Copies>();
  std::uint64_t bytes = 0;
  for (const plugin::Output& output : *outcome) {
    auto buffer = cache_->take(output.bytes, work->get.user);
    if (!buffer) return fail_call(*work, std::move(buffer).error(), now, effects);
    auto frame = std::make_shared<service::Frame>();
    frame->buffer = std::move(*buffer);
    frame->bytes = output.bytes;
    copies->frames.push_back(std::move(frame));
    bytes += output.bytes;
  }
  counters_.outputs += outcome->size();
  counters_.output_bytes += bytes;
  copies->outputs = std::move(*outcome);
  work->copies = copies;
  if (bytes <= limits_.copied_bytes_max) return on_job(token, copies->fill(), now, effects);
  effects.push_back(service::JobEffect{token, [copies] { return copies->fill(); }});
}

Status ComputeService::check_outputs(const Work& work, const plugin::Outputs& outputs) {
  if (!work.what->stores && outputs.size() > 1)
    return fail(Error::invalid,
                "{} has made {} outputs, and only one can be returned: name keys under which to put them",
                name_of(*work.what), outputs.size());
  std::uint64_t bytes = 0;
  for (const plugin::Output& output : outputs) {
    bytes += output.bytes;
    const std::string column = result_column_of(work.what->result_column, output.name, outputs.size() == 1);
    if (work.what->stores && column.size() > wire::key_bytes_max)
      return fail(Error::too_large, "{}: column key \"{}\" of an output has {} bytes, at most {} are allowed",
                  name_of(*work.what), brief(column), column.size(), wire::key_bytes_max);
  }
  if (!room_(bytes))
    return fail(Error::no_memory, "there is no room for {} bytes of outputs of {}", bytes, name_of(*work.what));
  return {};
}

void ComputeService::on_job(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  Work* const work = find(token);
  if (work == nullptr) return;
  if (work->state == Work::State::reading) return call(*work, std::exchange(work->inputs, {}), effects);
  if (status) return give(*work, now, effects);
  fail_call(*work, {status.error().code, fmt::format("{}: {}", name_of(*work->what), status.error().message)}, now,
            effects);
}

void ComputeService::give(Work& work, TimeNs now, Effects& effects) {
  const Computation& what = *work.what;
  const std::vector<FramePtr> frames = std::move(work.copies->frames);
  if (!what.stores) {
    if (frames.empty())
      effects.push_back(ReplyEffect{work.get.channel, work.get.ticket, wire::Done{0}});
    else
      pools_.answer(work.get, frames.front(), now, effects);
    (void)take(work.number);
    return;
  }
  auto pool = pools_.admit(work.get.pool, work.get.user, effects);  // the pool of a trigger may not exist yet
  if (!pool) return fail_work(work, std::move(pool).error(), now, effects);
  work.state = Work::State::storing;
  work.storing = frames.size() + 1;  // so that it does not end during this iteration
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const mover::Store::Place place{
        *pool,
        what.result_row,
        result_column_of(what.result_column, work.copies->outputs[i].name, frames.size() == 1),
        work.get.user,
        0,
        false};
    const auto stored = pools_.put(place, frames[i], work.token(), now, effects);
    if (!stored) work.failure = stored.error();
    if (!stored || *stored == mover::Stored::now) --work.storing;
  }
  pools_.leave(*pool);
  on_stored(work.token(), {}, now, effects);
}

void ComputeService::on_stored(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  Work* const work = find(token);
  if (work == nullptr) return;
  if (!status) work->failure = std::move(status).error();
  if (--work->storing > 0) return;
  if (work->failure) return fail_work(*work, std::move(*work->failure), now, effects);
  end_work(*work, {}, now, effects);
}

// ---- ends

void ComputeService::fail_work(Work& work, Failure failure, TimeNs now, Effects& effects) {
  end_work(work, tl::unexpected(std::move(failure)), now, effects);
}

// Names this member, because each member has plug-ins of its own. Another member that asked adds its name itself.
void ComputeService::fail_call(Work& work, Failure failure, TimeNs now, Effects& effects) {
  if (!work.get.of_member) failure.message = fmt::format("member {}: {}", pools_.self(), failure.message);
  fail_work(work, std::move(failure), now, effects);
}

void ComputeService::end_work(Work& work, Status status, TimeNs now, Effects& effects) {
  const std::unique_ptr<Work> ended = take(work.number);
  if (ended->trigger) {
    triggers_.on_ended(*ended->trigger, status, std::move(ended->object), now);
  } else if (!status) {
    ++counters_.failed;
    effects.push_back(FailEffect{ended->get.channel, ended->get.ticket, wire::any_reply, std::move(status).error()});
  } else {
    effects.push_back(ReplyEffect{ended->get.channel, ended->get.ticket, wire::Done{ended->copies->outputs.size()}});
  }
}

std::unique_ptr<ComputeService::Work> ComputeService::take(std::uint64_t number) {
  std::unique_ptr<Work> work = std::move(works_.extract(number).mapped());
  end_waiting(*work);
  by_name_.erase({work->get.channel, work->get.of_member, work->get.name(), number});
  return work;
}

// The channel's computations have no receiver any more. Puts under way continue.
void ComputeService::on_channel_closed(ChannelNumber channel, Effects& effects) {
  for (auto at = by_name_.lower_bound({channel, false, 0, 0}); at != by_name_.end() && std::get<0>(*at) == channel;)
    forget(std::get<3>(*at++), effects);
}

void ComputeService::cancel(ChannelNumber channel, std::uint64_t delivery, Effects& effects) {
  cancel_named(channel, true, delivery, effects);
}

void ComputeService::cancel_request(ChannelNumber channel, std::uint64_t ticket, Effects& effects) {
  cancel_named(channel, false, ticket, effects);
}

// A put under way is answered when its object is stored.
void ComputeService::cancel_named(ChannelNumber channel, bool of_member, std::uint64_t name, Effects& effects) {
  for (auto at = by_name_.lower_bound({channel, of_member, name, 0});
       at != by_name_.end() && *at <= std::tuple(channel, of_member, name, UINT64_MAX);) {
    const std::uint64_t number = std::get<3>(*at++);
    const Work& work = *works_.at(number);
    if (work.state == Work::State::storing) continue;
    effects.push_back(FailEffect{work.get.channel,
                                 work.get.ticket,
                                 wire::any_reply,
                                 {Error::cancelled, fmt::format("{} is no longer wanted", name_of(*work.what))}});
    forget(number, effects);
  }
}

void ComputeService::forget(std::uint64_t number, Effects& effects) {
  const Work& work = *works_.at(number);
  if (work.state == Work::State::storing) return;
  if (work.state == Work::State::calling) {
    --counters_.calling;
    effects.push_back(service::CancelCallEffect{work.token()});
  }
  (void)take(number);
}

void ComputeService::on_time(TimeNs now, Effects& effects) {
  std::set<std::uint64_t> ready = std::exchange(shown_, {});
  for (const std::uint64_t number : times_.take(now)) ready.insert(number);
  for (const std::uint64_t number : ready)
    if (const auto at = works_.find(number); at != works_.end()) try_inputs(*at->second, now, effects);
  run_triggers(now, effects);
}

// ---- triggers

void ComputeService::run_triggers(TimeNs now, Effects& effects) {
  triggers_.run(now, [&](std::size_t number, std::optional<Trigger::Object> object) {
    const Trigger& trigger = triggers_.all()[number];
    auto work = std::make_unique<Work>();
    work->number = next_number_++;
    work->state = Work::State::copying;  // it does not wait for objects
    work->trigger = number;
    work->get.pool = trigger.options.pool;
    work->get.user = pools_.owner_of(trigger.pool);
    auto what = std::make_shared<Computation>();
    what->plugin = trigger.options.plugin;
    what->function = trigger.options.function;
    what->stores = true;
    what->result_row = object ? object->keys.first : trigger.options.result_row;
    what->result_column = trigger.options.result_column;
    work->what = std::move(what);
    std::vector<QuerySource> inputs;
    if (object) inputs.push_back({object->frame, object->keys.first, object->keys.second});
    work->object = std::move(object);
    Work& begun = *works_.emplace(work->number, std::move(work)).first->second;
    call(begun, std::move(inputs), effects);
  });
}

}  // namespace offpath::pool
