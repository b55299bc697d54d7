#include "sift/pools/pool_effects.h"

#include <utility>

#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::sift {

using service::AskedMemory;
using wire::EntryKind;
using Input = UnderWay::Input;
using Work = UnderWay::Work;

namespace {

void answer(const Input& input, const Status& status, service::Effects& effects) {
  if (status)
    effects.push_back(service::ReplyEffect{input.channel, input.ticket, wire::Done{0}});
  else
    effects.push_back(service::FailEffect{input.channel, input.ticket, wire::any_reply, status.error()});
}

}  // namespace

PoolEffects::PoolEffects(const ServiceContext& context, UnderWay& under_way, std::function<bool(std::uint64_t)> room,
                         Events events)
    : context_(context),
      under_way_(under_way),
      events_(std::move(events)),
      pulls_(context.buffers, context.options.object_bytes_max, std::move(room),
             [this](service::ChannelNumber channel, std::uint64_t number) {
               return context_.pools.take_offer(channel, number);
             }) {}

void PoolEffects::carry_out(SiftPool& pool, TimeNs now, service::Effects& effects) {
  if (pool.carrying) return;  // called from within: the outer call carries it out
  pool.carrying = true;
  for (std::size_t i = 0; i < pool.pending.size(); ++i) {
    Effect effect = std::move(pool.pending[i]);
    carry_out(pool, effect, now, effects);
  }
  pool.pending.clear();
  pool.carrying = false;
  events_.carried_out(pool, now, effects);
}

void PoolEffects::carry_out(SiftPool& pool, Effect& effect, TimeNs now, service::Effects& effects) {
  if (auto* pull = std::get_if<AdmitEffect>(&effect)) {
    if (auto ended = pulls_.begin(pull->token, now, effects))
      pool.sift->on_pulled(ended->number, std::move(ended->frame), now, pool.pending);
  } else if (auto* stored = std::get_if<StoredEffect>(&effect)) {
    answered(pool, *stored, now, effects);
  } else if (auto* offered = std::get_if<PublishEffect>(&effect)) {
    publish(pool, *offered, now, effects);
  } else if (auto* job = std::get_if<JobEffect>(&effect)) {
    effects.push_back(
        service::JobEffect{under_way_.add(Work{Work::Kind::job, &pool, job->token}), std::move(job->run)});
  } else if (auto* over = std::get_if<FlushedEffect>(&effect)) {
    flushed(pool, *over, now, effects);
  } else if (auto* kept = std::get_if<KeepEffect>(&effect)) {
    if (kept->object != nullptr)
      pool.kept->keep(std::move(*kept), now, effects);
    else
      pool.sift->on_kept(kept->token, fail(Error::no_memory, "no memory for {}", kept->name), now, pool.pending);
  } else if (auto* forgotten = std::get_if<ForgetEffect>(&effect)) {
    pool.kept->forget(std::move(forgotten->name), now, effects);
  } else if (auto* wanted = std::get_if<ReadEffect>(&effect)) {
    pool.kept->read(*wanted, now, effects);
  } else if (auto* leaving = std::get_if<SpillEffect>(&effect)) {
    pool.kept->spill(std::move(*leaving), now, effects);
  }
}

void PoolEffects::answered(SiftPool& pool, const StoredEffect& stored, TimeNs now, service::Effects& effects) {
  const auto input = under_way_.take_input(stored.token);
  if (!input) return;
  switch (input->kind) {
    case Input::Kind::put:
      effects.push_back(service::StoredEffect{input->token, stored.status});
      return;
    case Input::Kind::own:
      pool.sift->on_published(input->token, stored.status, now, pool.pending);
      return;
    case Input::Kind::offer:
      pulls_.abandon(stored.token);
      answer(*input, stored.status, effects);
      return;
    case Input::Kind::flush:
      return;
  }
}

void PoolEffects::flushed(SiftPool& pool, const FlushedEffect& over, TimeNs now, service::Effects& effects) {
  const Input input = under_way_.take_input(over.token).value();
  if (input.token != 0)
    events_.flushed(pool, input.token, over.status, now, effects);
  else
    answer(input, over.status, effects);
}

void PoolEffects::publish(SiftPool& pool, PublishEffect& publish, TimeNs now, service::Effects& effects) {
  const std::uint64_t bytes = publish.frame ? publish.frame->bytes : 0;
  if (publish.member == context_.self) {
    const std::uint64_t number = under_way_.add(Input{.kind = Input::Kind::own, .pool = &pool, .token = publish.token});
    pool.sift->on_offer(number, std::move(publish.header), bytes, std::move(publish.frame), now, pool.pending);
    return;
  }
  const auto header = std::make_shared<std::vector<std::byte>>(encode(publish.header));
  service::AskEffect ask{under_way_.add(Work{Work::Kind::publish, &pool, publish.token}),
                         publish.member,
                         EntryKind::peer_piece,
                         deadline_after(now, context_.options.piece_wait_ns),
                         publish.frame,
                         0,
                         [header, bytes, user = std::uint64_t{pool.user}, text = pool.reference](
                             const AskedMemory& memory, std::vector<std::byte>& payload) {
                           wire::PeerPiece piece{user, memory.offer, memory.bytes, text, *header};
                           piece.object.length = bytes;
                           wire::encode(piece, payload);
                         }};
  ask.payload_bytes = header->size() + pool.reference.size() + 128;
  effects.push_back(std::move(ask));
}

// ---- what goes into a Sift

void PoolEffects::put(SiftPool& pool, std::uint64_t token, const std::string& row_key, service::FramePtr frame,
                      TimeNs now, service::Effects& effects) {
  const std::uint64_t number = under_way_.add(Input{.kind = Input::Kind::put, .pool = &pool, .token = token});
  pool.sift->on_put(number, row_key, std::move(frame), now, pool.pending);
  carry_out(pool, now, effects);
}

void PoolEffects::offer(SiftPool& pool, service::ChannelNumber channel, std::uint64_t ticket,
                        const wire::PeerPiece& piece, PieceHeader header, TimeNs now, service::Effects& effects) {
  const std::uint64_t number =
      under_way_.add(Input{.kind = Input::Kind::offer, .pool = &pool, .channel = channel, .ticket = ticket});
  const std::uint64_t bytes = piece.object.length;
  pulls_.add(number, {channel, piece.offer, piece.object, bytes, pool.user, deadline_after(now, second_ns)});
  pool.sift->on_offer(number, std::move(header), bytes, nullptr, now, pool.pending);
  carry_out(pool, now, effects);
}

void PoolEffects::flush(Input input, std::uint64_t number, TimeNs deadline, TimeNs now, service::Effects& effects) {
  SiftPool& pool = *input.pool;
  pool.sift->on_flush(under_way_.add(input), number, deadline, now, pool.pending);
  carry_out(pool, now, effects);
}

// ---- completions

void PoolEffects::pulled(PiecePulls::Ended ended, TimeNs now, service::Effects& effects) {
  const Input* const input = under_way_.input(ended.number);
  if (input == nullptr) return;
  SiftPool& pool = *input->pool;
  pool.sift->on_pulled(ended.number, std::move(ended.frame), now, pool.pending);
  carry_out(pool, now, effects);
}

void PoolEffects::pull_waiting(TimeNs now, service::Effects& effects) {
  for (std::size_t left = pulls_.waiting(); left > 0 && pulls_.waiting() > 0; --left)
    if (auto ended = pulls_.begin_waiting(now, effects)) pulled(std::move(*ended), now, effects);
}

bool PoolEffects::on_pull_job(std::uint64_t number, const Status& status, TimeNs now, service::Effects& effects) {
  if (!pulls_.is_under_way(number)) return false;
  if (auto ended = pulls_.end(number, status)) pulled(std::move(*ended), now, effects);
  return true;
}

void PoolEffects::on_job(const Work& work, const Status& status, TimeNs now, service::Effects& effects) {
  work.pool->sift->on_job(work.token, status, now, work.pool->pending);
  carry_out(*work.pool, now, effects);
}

void PoolEffects::on_published(const Work& work, const Status& status, TimeNs now, service::Effects& effects) {
  work.pool->sift->on_published(work.token, status, now, work.pool->pending);
  carry_out(*work.pool, now, effects);
}

void PoolEffects::on_closed(service::ChannelNumber channel, TimeNs now, service::Effects& effects) {
  for (const auto& [number, pool] : under_way_.take_offers_of(channel)) {
    pulls_.forget(number);
    pool->sift->on_offer_gone(number, now, pool->pending);
    carry_out(*pool, now, effects);
  }
}

}  // namespace offpath::sift
