// Parcels between agents, over the channels of their group (group/reach.h): the sender posts, the reader pulls. Small
// parcels are enclosed in the request; larger ones stay in the sender's memory until they have been read, in parts of
// at most 1 MiB.
//
//   Exchange -- send --> ChannelCarrier -- group::Request --> the other agent's ring
//                                                             --> ParcelReader -- pull --> deliver --> poll
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "channel/ring.h"
#include "exchange/carrier.h"
#include "group/reach.h"
#include "service/effects.h"

namespace offpath::exchange {

class ChannelCarrier final : public Carrier {
 public:
  using Post = std::function<void(const std::string& member, group::Request request)>;
  // The most unanswered requests to one member, which bounds the memory that a slow member costs.
  static constexpr std::uint32_t unanswered_max = 64;

  ChannelCarrier(std::uint64_t tag, std::vector<std::string> members, Post post)
      : tag_(tag),
        members_(std::move(members)),
        unanswered_(std::make_shared<std::vector<std::uint32_t>>(members_.size(), 0)),
        post_(std::move(post)) {}

  void send(MemberIndex to, SharedBytes parcel, TimeNs deadline, TimeNs now) override;
  [[nodiscard]] Status poll(TimeNs now, const Take& take) override;
  void deliver(SharedBytes parcel) { arrived_.push_back(std::move(parcel)); }
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_; }

 private:
  void post_part(MemberIndex to, const SharedBytes& parcel, std::uint64_t offset, std::uint64_t length,
                 TimeNs deadline);

  std::uint64_t tag_;
  std::vector<std::string> members_;
  std::shared_ptr<std::vector<std::uint32_t>> unanswered_;  // by member; answers may arrive after the carrier has ended
  Post post_;
  std::uint64_t parcels_ = 0, left_out_ = 0;
  std::deque<SharedBytes> arrived_;
};

// Parcels that other agents post to this one: pulls, assembles and passes them on. A state machine, like
// group::TableReader.
class ParcelReader {
 public:
  static constexpr std::size_t assembling_max = 8;  // parcels of one channel that are incomplete

  // `bytes_max` returns the size of the largest parcel of a tag; 0: there is no such exchange. `deliver` is called with
  // each complete parcel.
  ParcelReader(std::function<std::uint64_t(std::uint64_t tag)> bytes_max,
               std::function<void(std::uint64_t tag, SharedBytes parcel)> deliver)
      : bytes_max_(std::move(bytes_max)), deliver_(std::move(deliver)) {}

  void on_request(std::uint64_t channel, const channel::Entry& request, bool is_member, std::uint64_t token,
                  service::Effects& effects);
  [[nodiscard]] bool on_transfer(std::uint64_t token, const Status& status,
                                 service::Effects& effects);  // false: the pull belongs to another component
  void on_channel_closed(std::uint64_t channel);

 private:
  struct Assembly {
    std::uint64_t channel, tag, parcel;
    std::shared_ptr<std::vector<std::byte>> bytes;
    std::uint64_t there = 0;
  };
  struct Pulling {
    std::uint64_t channel, ticket, length;
    std::shared_ptr<Assembly> assembly;
  };
  [[nodiscard]] Status begin(std::uint64_t channel, const channel::Entry& request, bool is_member, std::uint64_t token,
                             service::Effects& effects);
  void finish(const std::shared_ptr<Assembly>& assembly);

  std::function<std::uint64_t(std::uint64_t)> bytes_max_;
  std::function<void(std::uint64_t, SharedBytes)> deliver_;
  std::deque<std::shared_ptr<Assembly>> assembling_;
  std::map<std::uint64_t, Pulling> pulling_;  // by token
};

}  // namespace offpath::exchange
