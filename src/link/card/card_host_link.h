// The base of the host ends of links to cards (verbs_host_link, doca_host_link): a control connection with the agent,
// and memory announced to its card. Read announced_memory.h first.
//
// `Registered`: a move-only handle that owns a key.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "link/card/announced_memory.h"
#include "link/control/host_control.h"
#include "link/link.h"
#include "link/stream/stream_host_link.h"

namespace offpath::link {

template <class Registered>
class CardHostLink : public HostLink, private HostControl::Owner {
 public:
  const LinkTraits& traits() const final { return traits_; }
  const wire::Welcome& welcome() const final { return welcome_; }
  MutableBytes channel_memory() final { return channel_segment_.bytes(); }
  Result<SegmentMemory> allocate(std::uint64_t length) final { return allocate_shared(length); }
  void retire_segment(RegionId segment) final { (void)announced_.withdraw(control_, segment, 0); }
  void retire_range(RegionId range, std::uint32_t generation) final { announced_.retire(control_, range, generation); }
  void withdraw_range(RegionId range, std::uint32_t generation) final {
    (void)announced_.withdraw(control_, range, generation);
  }
  bool is_withdrawn(RegionId range, std::uint32_t generation) final { return announced_.is_gone(range, generation); }
  void wake() final { control_.wake(); }
  void wake_with(Bytes requests) final { control_.wake(requests); }
  void wait(TimeNs deadline) final { control_.wait(deadline); }
  int event_fd() const final { return control_.event_fd(); }
  Status look() final { return control_.look(); }
  void abandon() final {
    if (control_.abandoned()) return;
    announced_.abandon();
    abandon_card();
    control_.abandon();
  }
  // The destructors of links call it.
  void close() final {
    if (control_.inherited()) return abandon();  // a child in which abandon() was not called: the card is its parent's
    end_card();
    control_.close();
  }

 protected:
  CardHostLink(const char* name, ControlSocket socket, HostControl::Events events, SegmentMemory channel_segment,
               wire::Welcome welcome)
      : control_(std::move(socket), Peer(), std::move(events), *this),
        channel_segment_(std::move(channel_segment)),
        welcome_(std::move(welcome)),
        traits_{name, true, false, 0, welcome_.reason} {}

  // The link as the handshake wants it: its agent has the channel segment.
  template <class Link>
  [[nodiscard]] static Result<std::unique_ptr<Link>> opened(std::unique_ptr<Link> link, TimeNs deadline) {
    OFP_TRY(link->announce_segment(wire::channel_segment, link->channel_segment_, deadline));
    return link;
  }

  // Afterwards the card accesses nothing here, and announced_ is empty.
  virtual void end_card() noexcept = 0;
  // In a forked child: forgets what belongs to the parent.
  virtual void abandon_card() noexcept = 0;

  HostControl control_;
  SegmentMemory channel_segment_;
  AnnouncedMemory<Registered> announced_;

 private:
  void on_lost() noexcept final { end_card(); }

  wire::Welcome welcome_;
  LinkTraits traits_;
};

}  // namespace offpath::link
