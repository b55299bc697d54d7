#include "testing/host/fake_agent.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"

namespace offpath::host {

void FakeAgent::on_request(channel::AgentEnd& channel, const channel::Entry& request, TimeNs) {
  switch (static_cast<wire::EntryKind>(request.kind)) {
    case wire::EntryKind::open_stream:
      return open(channel, request);
    case wire::EntryKind::grow_stream: {
      wire::GrowStream grow{};
      ASSERT_TRUE(wire::decode(request.payload, grow));
      if (!refusal) return channel.reply_failure(request.ticket, wire::any_reply, refusal.error());
      grown.emplace_back(grow.stream, grow.rows_max);
      return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{grow.rows_max});
    }
    case wire::EntryKind::close_stream:
      return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
    case wire::EntryKind::send:
      return send(channel, request);
    case wire::EntryKind::move:
      return move(channel, request);
    case wire::EntryKind::step_end: {
      wire::StepEnd step{};
      ASSERT_TRUE(wire::decode(request.payload, step));
      steps.emplace_back(step.row_key);
      channel.set_pulled(step.stream, request.ticket);
      return channel.set_stored(step.stream, request.ticket);
    }
    case wire::EntryKind::pool_get:
    case wire::EntryKind::pool_list:
    case wire::EntryKind::pool_drop:
    case wire::EntryKind::pool_compute:
    case wire::EntryKind::pool_query:
    case wire::EntryKind::query_next:
    case wire::EntryKind::push_lease:
      if (holds_requests)
        return held_.push_back({request.ticket, request.kind, {request.payload.begin(), request.payload.end()}});
      return answer_pool(channel, request);
    case wire::EntryKind::list_resources:
      return list_resources(channel, request);
    case wire::EntryKind::release: {
      wire::Release release{};
      ASSERT_TRUE(wire::decode(request.payload, release));
      return released.push_back(release.lease);
    }
    case wire::EntryKind::pool_cancel: {
      wire::PoolCancel cancel{};
      ASSERT_TRUE(wire::decode(request.payload, cancel));
      return cancelled.push_back(cancel.ticket);
    }
    case wire::EntryKind::need_credit: {
      wire::NeedCredit need{};
      ASSERT_TRUE(wire::decode(request.payload, need));
      return credit_wanted.push_back(need.total);
    }
    case wire::EntryKind::why_waits:
      if (why_waits.empty()) return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
      return channel.reply_failure(request.ticket, wire::any_reply, {Error::timeout, why_waits});
    case wire::EntryKind::exchange_open:
      return open_exchange(channel, request);
    case wire::EntryKind::exchange_info:
      return describe(channel, request);
    case wire::EntryKind::exchange_wait:
      if (holds_views) return view_waits_.push_back(request.ticket);
      return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{views_});
    case wire::EntryKind::exchange_grant: {
      wire::ExchangeGrant grant{};
      ASSERT_TRUE(wire::decode(request.payload, grant));
      targets = grant.targets;
      return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{1});
    }
    case wire::EntryKind::exchange_close: {
      wire::ExchangeClose close{};
      ASSERT_TRUE(wire::decode(request.payload, close));
      ASSERT_EQ(areas.erase(close.number), 1u) << "there is no exchange " << close.number;
      return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
    }
    case wire::EntryKind::task_open:
      ++sessions_of_tasks;
      return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{1});
    case wire::EntryKind::task_run:
      return run(channel, request);
    case wire::EntryKind::task_wait:
      return task_waits_.push_back(request.ticket);
    case wire::EntryKind::task_cancel: {
      wire::TaskCancel cancel{};
      ASSERT_TRUE(wire::decode(request.payload, cancel));
      return cancel_tasks(channel, [&](const Task& task) { return task.ticket == cancel.ticket; });
    }
    case wire::EntryKind::task_close:
      --sessions_of_tasks;
      cancel_tasks(channel, [](const Task&) { return true; });
      return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
    default:
      FAIL() << "request kind " << int(request.kind);
  }
}

void FakeAgent::open(channel::AgentEnd& channel, const channel::Entry& request) {
  wire::OpenStream open{};
  ASSERT_TRUE(wire::decode(request.payload, open));
  if (!refusal) return channel.reply_failure(request.ticket, wire::any_reply, refusal.error());
  pools.emplace_back(open.pool);
  opened.push_back(open);
  channel.reset_line(open.stream);
  channel.set_credit(open.stream, credit_bytes);
  channel.reply(wire::ReplyKind::opened, request.ticket, wire::Opened{open.stream, charge_base});
}

void FakeAgent::send(channel::AgentEnd& channel, const channel::Entry& request) {
  wire::Send send{};
  ASSERT_TRUE(wire::decode(request.payload, send));
  Batch batch;
  batch.ticket = request.ticket;
  batch.stream = send.stream;
  batch.charge = send.charge;
  batch.rows = send.rows;
  batch.row_key = send.row_key;
  batch.column_key = send.column_key;
  batch.nodes = send.nodes;
  batch.buffers = send.buffers;
  batch.set = send.set;
  batch.named = !send.buffers.empty();
  auto& set = sets_[{send.stream, send.set}];
  if (send.set != 0 && batch.named) set = send.buffers;
  if (send.set != 0) batch.buffers = set;
  pull(channel, std::move(batch));
}

void FakeAgent::move(channel::AgentEnd& channel, const channel::Entry& request) {
  wire::Move move{};
  ASSERT_TRUE(wire::decode(request.payload, move));
  Batch batch;
  batch.kind = wire::EntryKind::move;
  batch.ticket = request.ticket;
  batch.stream = move.stream;
  batch.charge = move.charge;
  batch.rows = move.object_bytes;
  batch.row_key = move.row_key;
  for (const wire::MovePiece& piece : move.pieces) batch.buffers.push_back(piece.source);
  pull(channel, std::move(batch));
}

void FakeAgent::pull(channel::AgentEnd& channel, Batch batch) {
  std::vector<link::ReadPiece> pieces;
  for (const wire::BufferRef& buffer : batch.buffers) {
    batch.bytes.emplace_back(buffer.length);
    if (buffer.length > 0)
      pieces.push_back({buffer.region, buffer.generation, buffer.offset, batch.bytes.back().data(), buffer.length});
  }
  batches.push_back(std::move(batch));
  if (pulls) channel.pull(batches.size() - 1, std::move(pieces));
}

void FakeAgent::open_exchange(channel::AgentEnd& channel, const channel::Entry& request) {
  ASSERT_TRUE(wire::decode(request.payload, exchange_opened));
  if (!refusal) return channel.reply_failure(request.ticket, wire::any_reply, refusal.error());
  areas[++exchanges_] = exchange_opened.area;
  channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{exchanges_});
}

void FakeAgent::describe(channel::AgentEnd& channel, const channel::Entry& request) {
  wire::ExchangeInfo info{};
  ASSERT_TRUE(wire::decode(request.payload, info));
  described_.clear();
  wire::encode_description(exchange, described_);
  ASSERT_LE(described_.size(), info.room.length);
  channel.push(descriptions_from + request.ticket,
               {{info.room.region, info.room.offset, described_.data(), described_.size()}});
}

void FakeAgent::run(channel::AgentEnd& channel, const channel::Entry& request) {
  wire::TaskRun run{};
  ASSERT_TRUE(wire::decode(request.payload, run));
  const Task task{request.ticket, run.line, run.inputs.size(), run.outputs.size(), run.after};
  if (holds_tasks) return tasks.push_back(task);
  answer(channel, task);
}

void FakeAgent::answer(channel::AgentEnd& channel, const Task& task) {
  wire::TaskDone done{};
  done.output_bytes.assign(task.outputs, 8);
  channel.reply(wire::ReplyKind::task_done, task.ticket, done);
}

template <class Which>
void FakeAgent::cancel_tasks(channel::AgentEnd& channel, const Which& which) {
  std::erase_if(tasks, [&](const Task& task) {
    if (!which(task)) return false;
    channel.reply_failure(task.ticket, wire::any_reply, {Error::cancelled, "cancelled"});
    return true;
  });
}

void FakeAgent::on_transfer(channel::AgentEnd& channel, std::uint64_t token, Status status, TimeNs) {
  if (token >= queries_from) {
    ASSERT_TRUE(status) << status.error().message;
    return channel.reply(wire::ReplyKind::done, token - queries_from, wire::Done{answer_number});
  }
  if (token >= lines_from) {
    ++views_shown;
    for (const std::uint64_t ticket : std::exchange(view_waits_, {}))
      channel.reply(wire::ReplyKind::done, ticket, wire::Done{views_});
    return;
  }
  if (token >= views_from) {
    const wire::BufferRef& area = areas.rbegin()->second;
    line_ = token - views_from;
    return channel.push(lines_from + line_, {{area.region, area.offset + sizeof(wire::PublishLine),
                                              reinterpret_cast<const std::byte*>(&line_), sizeof line_}});
  }
  if (token >= descriptions_from)
    return channel.reply(wire::ReplyKind::done, token - descriptions_from, wire::Done{described_.size()});
  if (token >= pushes_from) return channel.reply(wire::ReplyKind::got, token - pushes_from, pushed_);
  Batch& batch = batches[token];
  batch.pulled = status;
  if (!status) channel.reply_failure(batch.ticket, batch.stream, status.error());
  channel.set_pulled(batch.stream, batch.ticket);
  channel.set_stored(batch.stream, batch.ticket);
}

void FakeAgent::answer_pool(channel::AgentEnd& channel, const channel::Entry& request) {
  switch (static_cast<wire::EntryKind>(request.kind)) {
    case wire::EntryKind::pool_get: {
      wire::PoolGet get{};
      ASSERT_TRUE(wire::decode(request.payload, get));
      return give(channel, request, std::string(get.row_key));
    }
    case wire::EntryKind::pool_compute: {
      wire::PoolCompute compute{};
      ASSERT_TRUE(wire::decode(request.payload, compute));
      if (compute.stores) return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{1});
      return give(channel, request, std::string(compute.row_key));
    }
    case wire::EntryKind::pool_query: {
      wire::PoolQuery asked{};
      ASSERT_TRUE(wire::decode(request.payload, asked));
      query.resize(asked.query.length);
      return channel.pull(queries_from + request.ticket, {{asked.query.region, asked.query.generation,
                                                           asked.query.offset, query.data(), query.size()}});
    }
    case wire::EntryKind::query_next: {
      wire::QueryNext next{};
      ASSERT_TRUE(wire::decode(request.payload, next));
      if (next.index == query_frames.size()) return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
      ASSERT_LT(next.index, query_frames.size());
      return give(channel, request, query_frames[next.index]);
    }
    case wire::EntryKind::push_lease:
      return push(channel, request);
    case wire::EntryKind::pool_list:
      return list(channel, request);
    default:
      return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{objects.size()});
  }
}

void FakeAgent::give(channel::AgentEnd& channel, const channel::Entry& request, const std::string& row) {
  const auto at = objects.find(row);
  if (at == objects.end())
    return channel.reply_failure(request.ticket, wire::any_reply, {Error::not_found, "no object " + row});
  const Object& object = at->second;
  const std::uint64_t length = object.said_bytes != 0 ? object.said_bytes : object.bytes.size();
  wire::Got got{wire::Got::How::descriptor, true, 0, length, 7};
  got.lease = ++leases_;
  leased_[got.lease] = at->first;
  if (!hands_over_) {
    got.how = wire::Got::How::needs_segment;
    return channel.reply(wire::ReplyKind::got, request.ticket, got);
  }
  const Fd fd(memfd_create("object", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(write(fd.get(), object.bytes.data(), object.bytes.size()), ssize_t(object.bytes.size()));
  if (object.seals != 0) {
    ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, object.seals), 0);
  }
  ASSERT_TRUE(channel.hand_over(request.ticket, fd.get()));
  channel.reply(wire::ReplyKind::got, request.ticket, got);
}

void FakeAgent::push(channel::AgentEnd& channel, const channel::Entry& request) {
  wire::PushLease asked{};
  ASSERT_TRUE(wire::decode(request.payload, asked));
  const auto lease = leased_.extract(asked.lease);
  ASSERT_TRUE(lease) << "there is no lease " << asked.lease;
  const Object& object = objects.at(lease.mapped());
  pushed_ = {wire::Got::How::pushed, true, 0, object.bytes.size(), 7};
  channel.push(pushes_from + request.ticket, {{asked.segment, 0, object.bytes.data(), object.bytes.size()}});
}

void FakeAgent::list_resources(channel::AgentEnd& channel, const channel::Entry& request) {
  wire::ListResources asked{};
  ASSERT_TRUE(wire::decode(request.payload, asked));
  directory_asked.push_back(std::string(asked.member) + ":" + std::string(asked.path));
  wire::Listed listed{};
  listed.view = directory_version;
  for (const auto& [path, about] : resources) {
    if (directory_version == asked.seen || path <= asked.after || !path.starts_with(asked.path)) continue;
    listed.more = listed.entries.size() == 2;
    if (listed.more) break;
    listed.entries.push_back({0, 0, 0, false, path, about, "here"});
  }
  channel.reply(wire::ReplyKind::listed, request.ticket, listed);
}

void FakeAgent::list(channel::AgentEnd& channel, const channel::Entry& request) {
  wire::PoolList list{};
  ASSERT_TRUE(wire::decode(request.payload, list));
  wire::Listed listed{};
  std::uint64_t sequence = 0;
  for (const auto& [row, object] : objects) {
    if (++sequence <= list.after) continue;
    listed.more = listed.entries.size() == 3;  // so that a listing takes several replies
    if (listed.more) break;
    listed.entries.push_back({sequence, object.bytes.size(), 7, true, row, "column"});
  }
  channel.reply(wire::ReplyKind::listed, request.ticket, listed);
}

}  // namespace offpath::host
