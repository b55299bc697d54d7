// The stores of simulated agents: objects of a pool that is kept, their copies at the next agent, and tracks that have
// left memory. A store is slow, is full for a while, fails although it has stored, does not get to removing what is to
// be removed, and cannot be read for a moment.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sift/kept/copies.h"
#include "sift_sim_carrier.h"
#include "testing/pool/memory_unread.h"

namespace offpath::sift::simulated {

class Stores : public Carrier {
 protected:
  using Carrier::Carrier;

  void carry_out_at_store(std::size_t i, Effect& effect) override {
    if (auto* kept = std::get_if<KeepEffect>(&effect))
      keep(i, std::move(*kept));
    else if (auto* forgotten = std::get_if<ForgetEffect>(&effect))
      forget(i, *forgotten);
    else if (auto* asked = std::get_if<ReadEffect>(&effect))
      read(i, *asked);
    else if (auto* leaving = std::get_if<SpillEffect>(&effect))
      spill(i, *leaving);
  }

  // The agents that have copies of this agent's kept objects.
  [[nodiscard]] Agent::Copies* copies_of(std::size_t i) {
    return settings_.replicas < 2 || agents_.size() < 2 ? nullptr : &agents_[holders_[i]].copies;
  }

  // Copies of runs take other memory: they stay.
  void keep(std::size_t i, KeepEffect effect) {
    Agent::Copies* const copies = copies_of(i);
    if (copies == nullptr || effect.object == nullptr || copy_stays(effect.name))
      return store_object(i, std::move(effect));
    ++copies_;
    const std::uint64_t life = agents_[i].incarnation, bytes = align_up(effect.object->bytes, page_bytes);
    const auto over = std::make_shared<bool>(false);
    const std::uint64_t token = effect.token;
    const auto begin = [this, i, life, copies, bytes, over, effect = std::move(effect)] {
      if (*over || agents_[i].incarnation != life) return true;
      std::uint64_t& before = copies->held[{i, effect.name}];  // an object may exist although keeping it failed
      if (copies->used - before + bytes > copies->room) return false;
      copies->used += bytes - before;
      copies->used_peak = std::max(copies->used_peak, copies->used);
      before = bytes;
      store_object(i, effect);
      return *over = true;
    };
    if (begin()) return;
    ++copies->waited;
    copies->waiting.push_back(begin);
    at(now_ + 30 * second_ns, [this, i, life, over, token] {
      if (std::exchange(*over, true) || agents_[i].incarnation != life) return;
      // With many agents the place of copies is not searched: one may have those of several.
      EXPECT_GT(agents_.size(), 16u) << "a copy found no room in time";
      Effects effects;
      agents_[i].sift->on_kept(token, fail(Error::no_memory, "no room for a copy"), now_, effects);
      carry_out(i, effects);
    });
  }

  void forget_copy(std::size_t i, const std::string& name) {
    Agent::Copies* const copies = copies_of(i);
    if (copies == nullptr) return;
    const auto held = copies->held.extract({i, name});
    if (!held) return;
    copies->used -= held.mapped();
    for (auto& begin : std::exchange(copies->waiting, {}))
      if (!begin()) copies->waiting.push_back(std::move(begin));
  }

  void store_object(std::size_t i, KeepEffect effect) {
    const bool full = now_ < full_until_;
    const bool stored = effect.object != nullptr && !full && !random_.chance(0.02),
               told = stored && !random_.chance(0.02);
    const std::uint64_t life = agents_[i].incarnation;
    const TimeNs when = now_ + 1 + random_.below(3 * millisecond_ns);
    at(when, [this, i, stored, name = effect.name,
              object = effect.object] {  // also if it is killed meanwhile: it had been asked for
      if (!stored) {
        if (!agents_[i].store.contains(name)) forget_copy(i, name);
        return;
      }
      const Bytes bytes(object->buffer.data(), object->bytes);
      agents_[i].store.insert_or_assign(name, Agent::Object{{bytes.begin(), bytes.end()}, object->rows});
    });
    at(when + random_.below(millisecond_ns), [this, i, life, told, full, token = effect.token] {
      if (agents_[i].incarnation != life) return;
      Effects effects;
      agents_[i].sift->on_kept(token, told ? Status{} : fail(full ? Error::no_space : Error::timeout, "drawn"), now_,
                               effects);
      carry_out(i, effects);
    });
  }

  // On the agent's own disk.
  void spill(std::size_t i, const SpillEffect& effect) {
    const bool there = agents_[i].store.contains(effect.name);
    const bool full = now_ < full_until_;
    const bool stored = there || (!full && !random_.chance(0.05));
    at(now_ + (there ? 0 : 1 + random_.below(3 * millisecond_ns)),
       [this, i, life = agents_[i].incarnation, effect, stored, full] {
         Agent& agent = agents_[i];
         if (agent.incarnation != life) return;
         Result<FramePtr> unread = fail(full ? Error::no_space : Error::io, "drawn");
         if (stored) {
           const Bytes bytes(effect.object->buffer.data(), effect.object->bytes);
           agent.store.insert_or_assign(effect.name, Agent::Object{{bytes.begin(), bytes.end()}, effect.object->rows});
           unread = unread_object(i, effect.name);
         }
         Effects effects;
         agent.sift->on_spilled(effect.token, std::move(unread), now_, effects);
         carry_out(i, effects);
       });
  }

  FramePtr unread_object(std::size_t i, const std::string& name) {
    const Agent::Object& object = agents_[i].store.at(name);
    return pool::MemoryUnread::frame(object.bytes.size(), object.rows, agents_[i].memory.cache,
                                     [this, i, name]() -> Result<Bytes> {
                                       if (!reads_well_ && random_.chance(0.02))
                                         return fail(Error::io, "the disk fails for the moment");
                                       const auto found = agents_[i].store.find(name);
                                       if (found == agents_[i].store.end()) {
                                         ADD_FAILURE() << "'" << name << "' is read, and was forgotten";
                                         return fail(Error::io, "none");
                                       }
                                       return Bytes(found->second.bytes);
                                     });
  }

  void forget(std::size_t i, const ForgetEffect& effect) {
    // every agent with a copy is asked again; that the agent itself still has it does no harm
    const bool lost = random_.chance(0.05);
    at(now_ + 1 + (lost ? 5 * second_ns : random_.below(5 * millisecond_ns)),
       [this, i, lost, life = agents_[i].incarnation, name = effect.name] {
         if (agents_[i].incarnation != life) return;
         if (!lost) agents_[i].store.erase(name);
         forget_copy(i, name);
       });
  }

  void read(std::size_t i, const ReadEffect& effect) {
    at(now_ + 1 + random_.below(3 * millisecond_ns), [this, i, life = agents_[i].incarnation, effect] {
      Agent& agent = agents_[i];
      if (agent.incarnation != life) return;
      Effects effects;
      if (effect.unread && agent.store.contains(effect.name))
        agent.sift->on_read(effect.token, unread_object(i, effect.name), now_, effects);
      else
        agent.sift->on_read(effect.token, stored_object(agent, effect.name), now_, effects);
      carry_out(i, effects);
    });
  }

  Result<FramePtr> stored_object(const Agent& agent, const std::string& name) {
    if (random_.chance(0.05)) {
      if (random_.chance(0.5)) return fail(Error::io, "the disk fails for the moment");
      return fail(Error::would_block, "no room for the moment");
    }
    const auto found = agent.store.find(name);
    if (found == agent.store.end()) {
      ADD_FAILURE() << "'" << name << "' is read, and was forgotten";
      return fail(Error::not_found, "none");
    }
    const auto& bytes = found->second.bytes;
    auto copy = std::make_shared<service::Frame>();
    OFP_ASSIGN(copy->buffer, agent.memory.cache->take(bytes.size(), 7));
    std::memcpy(copy->buffer.data(), bytes.data(), bytes.size());
    copy->bytes = bytes.size();
    copy->rows = found->second.rows;
    return copy;
  }

  std::vector<std::size_t> holders_;  // of each agent's copies
  std::uint64_t copies_ = 0;          // that there were
  TimeNs full_until_ = 0;
  bool reads_well_ = false;
};

}  // namespace offpath::sift::simulated
