// Objects that other members name: pulled over the link, or read from a descriptor that came over the socket, into a
// buffer of this agent.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "base/clock.h"
#include "base/fd.h"
#include "mover/store.h"
#include "pool/table/reserve.h"
#include "service/effects.h"
#include "wire/region.h"

namespace offpath::pool {

class Intake {
 public:
  struct Object {
    service::ChannelNumber channel = 0;
    std::uint64_t offer = 0;  // not 0: the number of a descriptor
    wire::BufferRef from{};   // otherwise
    std::uint64_t bytes = 0;
    uid_t user = 0;
    TimeNs offer_until = never;          // fails then if its descriptor has not come
    Fd descriptor{};                     // once it has
    std::shared_ptr<Reserve> reserve{};  // memory set aside for objects like it; null: there is none
    bool stays = false;                  // stays for long: it uses the reserve only if there is no other room

    // The time of the next look if no event comes first.
    [[nodiscard]] TimeNs deadline() const noexcept { return offer != 0 && !descriptor ? offer_until : never; }
  };
  enum class Begun {
    not_yet,  // no room, or its descriptor has not come
    later,    // a transfer or a job with the token ends it
    now,      // it is complete
  };
  // `bytes_max`: of an object; larger ones never fit. `room`: whether so many bytes may be taken now. `take_offer`: a
  // descriptor that has come, if any. `unused`: whether so many bytes of a reserve may be taken now.
  Intake(std::shared_ptr<service::BufferCache> buffers, std::uint64_t bytes_max,
         std::function<bool(std::uint64_t)> room, std::function<Fd(service::ChannelNumber, std::uint64_t)> take_offer,
         std::function<bool(std::uint64_t)> unused = {})
      : buffers_(std::move(buffers)),
        bytes_max_(bytes_max),
        room_(std::move(room)),
        take_offer_(std::move(take_offer)),
        unused_(std::move(unused)) {}

  // Error::too_large: it will never fit.
  [[nodiscard]] Status may_fit(std::uint64_t bytes) const;

  [[nodiscard]] Result<Begun> begin(std::uint64_t token, Object& object, TimeNs now, service::Effects& effects);
  // The object, once begun: a frame without rows and kind.
  [[nodiscard]] Result<service::FramePtr> end(std::uint64_t token, const Status& status);
  // Its channel is gone: no pull writes into the buffer any more.
  void forget(std::uint64_t token) { taken_.erase(token); }

 private:
  struct Taken {
    std::shared_ptr<service::Buffer> buffer;  // a job that reads holds it, too
    std::shared_ptr<const void> room;
  };
  [[nodiscard]] bool find_room(const Object& object, std::shared_ptr<const void>& room) const;

  std::shared_ptr<service::BufferCache> buffers_;
  std::uint64_t bytes_max_;
  std::function<bool(std::uint64_t)> room_;
  std::function<Fd(service::ChannelNumber, std::uint64_t)> take_offer_;
  std::function<bool(std::uint64_t)> unused_;
  std::unordered_map<std::uint64_t, Taken> taken_;
};

}  // namespace offpath::pool
