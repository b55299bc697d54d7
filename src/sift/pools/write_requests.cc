#include "sift/pools/write_requests.h"

#include <algorithm>
#include <utility>

#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::sift {

using service::AskedMemory;
using service::ChannelNumber;
using wire::EntryKind;

WriteRequests::WriteRequests(const ServiceContext& context, KnownPools& known, UnderWay& under_way,
                             const PoolMaking& making, PoolAgreements& agreements)
    : context_(context),
      known_(known),
      making_(making),
      agreements_(agreements),
      parts_([&under_way] { return under_way.next_number(); },
             [this](const TrackParts::Asker& to, Result<wire::Written> answer, TimeNs, service::Effects& effects) {
               if (!to.channel)
                 own_parts_.emplace_back(to.ticket, std::move(answer));
               else if (answer)
                 effects.push_back(service::ReplyEffect{*to.channel, to.ticket, *answer});
               else
                 effects.push_back(service::FailEffect{*to.channel, to.ticket, wire::any_reply, answer.error()});
             }),
      writes_([&under_way] { return under_way.next_number(); }, context.options.ask_wait_ns,
              [this](const TrackWrites::Ask& asked, const TrackWrites::Wanted& wanted, TimeNs now,
                     service::Effects& effects) { ask(asked, wanted, now, effects); }) {}

// ---- writes of programs

Status WriteRequests::serve(ChannelNumber channel, std::uint64_t ticket, const wire::SiftWrite& asked, TimeNs now,
                            service::Effects& effects) {
  return begin(channel, ticket, std::string(asked.pool), std::string(asked.directory),
               asked.wait_ns < 0 ? never : deadline_after(now, asked.wait_ns), now, effects);
}

Status WriteRequests::serve_written(ChannelNumber channel, std::uint64_t ticket, const wire::SiftWritten& asked,
                                    TimeNs now, service::Effects& effects) {
  OFP_TRY(writes_.serve(channel, ticket, asked, now, effects));
  tell_own_parts(now, effects);
  return {};
}

// Until the pool is ready the request waits, but not longer than the program.
Status WriteRequests::begin(ChannelNumber channel, std::uint64_t ticket, const std::string& text,
                            const std::string& directory, TimeNs deadline, TimeNs now, service::Effects& effects) {
  if (deadline <= now) return fail(Error::timeout, "pool \"{}\" was not ready to be written in time", text);
  OFP_ASSIGN(SiftPool* const pool, making_.existing(text, context_.channels.at(channel)));
  OFP_ASSIGN(const bool waits,
             pool->defer(
                 [this, channel, ticket, text, directory, deadline](TimeNs then, service::Effects& more) {
                   if (!context_.channels.contains(channel)) return;
                   if (Status begun = begin(channel, ticket, text, directory, deadline, then, more); !begun)
                     more.push_back(service::FailEffect{channel, ticket, wire::any_reply, std::move(begun).error()});
                 },
                 now));
  if (waits) return {};
  const Geometry& geometry = pool->sift->geometry();
  const std::uint32_t stage = pool->settings.track_stage();
  std::set<std::string> keepers;
  for (std::uint32_t element = 0; element < pool->settings.elements(stage); ++element)
    keepers.insert(geometry.owner_name({stage, element}, 0));
  OFP_ASSIGN(const std::uint64_t number, writes_.begin(channel,
                                                       {.name = pool->name,
                                                        .text = pool->reference,
                                                        .pool_user = pool->user,
                                                        .user = context_.channels.at(channel),
                                                        .directory = directory,
                                                        .deadline = deadline},
                                                       {keepers.begin(), keepers.end()}, now, effects));
  effects.push_back(service::ReplyEffect{channel, ticket, wire::Done{number}});
  tell_own_parts(now, effects);
  return {};
}

void WriteRequests::ask(const TrackWrites::Ask& asked, const TrackWrites::Wanted& wanted, TimeNs now,
                        service::Effects& effects) {
  if (asked.member == context_.self) return ask_self(asked, wanted, now, effects);
  effects.push_back(service::AskEffect{
      service::token_of(service::ServiceId::sift, asked.number), asked.member, EntryKind::peer_write, asked.deadline,
      nullptr, 0, [asked, wanted, process = context_.process](const AskedMemory&, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerWrite{asked.what, wanted.pool_user, wanted.user, process, asked.write, asked.wait_ns,
                                     wanted.text, wanted.directory},
                     payload);
      }});
  std::get<service::AskEffect>(effects.back()).payload_bytes = wanted.text.size() + wanted.directory.size() + 128;
}

void WriteRequests::ask_self(const TrackWrites::Ask& asked, const TrackWrites::Wanted& wanted, TimeNs now,
                             service::Effects& effects) {
  const TrackParts::Asker from{.channel = {}, .ticket = asked.number, .write = asked.write};
  const TimeNs until = deadline_after(now, asked.wait_ns);
  if (asked.what != What::begin) return serve_part(from, asked.what, until, now, effects);
  const SiftPool* const pool = known_.named(wanted.name);
  const Status begun =
      pool == nullptr
          ? fail(Error::not_found, "there is no pool \"{}\"", wanted.name)
          : begin_part(*pool, {from, context_.process, wanted.user, pool->text, wanted.directory, until}, now, effects);
  if (!begun) own_parts_.emplace_back(asked.number, tl::unexpected(begun.error()));
}

// ---- parts of this agent

Status WriteRequests::serve_member(ChannelNumber channel, std::uint64_t ticket, const wire::PeerWrite& asked,
                                   TimeNs now, service::Effects& effects) {
  const TrackParts::Asker from{.channel = channel, .ticket = ticket, .write = asked.number};
  const TimeNs until = deadline_after(now, asked.wait_ns);
  if (asked.what != What::begin) {
    serve_part(from, asked.what, until, now, effects);
    return {};
  }
  OFP_ASSIGN(SiftPool* const pool, agreements_.define_agreed(asked.pool, static_cast<uid_t>(asked.user), now, effects));
  return begin_part_of_member(
      {from, asked.process, static_cast<uid_t>(asked.asker), pool->text, std::string(asked.directory), until}, now,
      effects);
}

// Like begin; the asking member waits until shortly after `until`, or abandons it.
Status WriteRequests::begin_part_of_member(const PartAsked& asked, TimeNs now, service::Effects& effects) {
  if (deadline_after(asked.until, context_.options.ask_wait_ns) <= now)
    return fail(Error::timeout, "member {}: pool \"{}\" was not ready to be written in time", context_.self,
                asked.text);
  OFP_ASSIGN(SiftPool* const pool, known_.find(asked.text));
  if (pool == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", name_in(asked.text));
  const std::pair key{*asked.from.channel, asked.from.write};
  OFP_ASSIGN(const bool waits, pool->defer(
                                   [this, asked, key](TimeNs then, service::Effects& more) {
                                     if (deferred_parts_.erase(key) == 0) return;
                                     if (Status begun = begin_part_of_member(asked, then, more); !begun)
                                       more.push_back(service::FailEffect{key.first, asked.from.ticket, wire::any_reply,
                                                                          std::move(begun).error()});
                                   },
                                   now));
  if (!waits) return begin_part(*pool, asked, now, effects);
  deferred_parts_.insert(key);
  return {};
}

// For the agent's own user the kernel decides where the user may write. For another user it would be the agent's
// rights.
Status WriteRequests::begin_part(const SiftPool& pool, const PartAsked& asked, TimeNs now, service::Effects& effects) {
  if (asked.asker != context_.options.agent_user)
    return fail(Error::denied, "agent {} runs as user {} and writes files for that user alone, not for user {}",
                context_.self, context_.options.agent_user, asked.asker);
  const Geometry& geometry = pool.sift->geometry();
  const std::vector<std::uint32_t> elements =
      geometry.elements_of(geometry.position_of(context_.self), pool.settings.track_stage());
  parts_.begin(asked.from, asked.asker, pool.sift->tracks(elements),
               {.path = asked.directory,
                .writer = {.member = context_.self, .process = asked.process, .number = asked.from.write}},
               {context_.buffers, asked.asker}, asked.until, now, effects);
  return {};
}

void WriteRequests::serve_part(const TrackParts::Asker& from, What what, TimeNs until, TimeNs now,
                               service::Effects& effects) {
  switch (what) {
    case What::begin:
    case What::more:
      return parts_.more(from, until, now, effects);
    case What::publish:
      return parts_.publish(from, now, effects);
    case What::finish:
      return parts_.finish(from, now, effects);
    case What::abandon:
      if (from.channel) deferred_parts_.erase({*from.channel, from.write});
      parts_.abandon(from, now, effects);
      if (from.channel) effects.push_back(service::ReplyEffect{*from.channel, from.ticket, wire::Written{}});
      return;
  }
}

// Answers of this agent's own parts, which may cause further questions to them.
void WriteRequests::tell_own_parts(TimeNs now, service::Effects& effects) {
  while (!own_parts_.empty())
    for (const auto& [number, answer] : std::exchange(own_parts_, {})) writes_.on_answer(number, answer, now, effects);
}

// ---- events

void WriteRequests::on_job(std::uint64_t job, Status status, TimeNs now, service::Effects& effects) {
  parts_.on_job(job, std::move(status), now, effects);
  tell_own_parts(now, effects);
}

void WriteRequests::on_answer(std::uint64_t number, const Result<service::Answer>& answer, TimeNs now,
                              service::Effects& effects) {
  wire::Written written{};
  writes_.on_answer(number, answer.and_then([&](const service::Answer& said) -> Result<wire::Written> {
    OFP_TRY(wire::decode(said.payload, written));
    return written;
  }),
                    now, effects);
  tell_own_parts(now, effects);
}

void WriteRequests::on_members(std::span<const std::string> anew, TimeNs now, service::Effects& effects) {
  writes_.on_members(context_.alive, anew, now, effects);
  tell_own_parts(now, effects);
}

void WriteRequests::on_closed(ChannelNumber channel, TimeNs now, service::Effects& effects) {
  std::erase_if(deferred_parts_, [&](const auto& each) { return each.first == channel; });
  parts_.on_closed(channel, now, effects);
  writes_.on_closed(channel, now, effects);
  tell_own_parts(now, effects);
}

void WriteRequests::on_time(TimeNs now, service::Effects& effects) {
  parts_.on_time(now, effects);
  writes_.on_time(now, effects);
  tell_own_parts(now, effects);
}

}  // namespace offpath::sift
