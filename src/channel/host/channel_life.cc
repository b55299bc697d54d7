#include "channel/host/channel_life.h"

#include <utility>

namespace offpath::channel {

Status ChannelLife::why_not() const {
  if (fork_mark_.in_child())
    return fail(Error::forked, "this channel belongs to the parent process; a forked child connects for itself");
  if (lost_) return tl::unexpected(*lost_);
  return fail(Error::closed, "the channel is closed");
}

Status ChannelLife::lose(Failure why) {
  if (!lost_) lost_ = std::move(why);
  notify_all();
  return tl::unexpected(*lost_);
}

void ChannelLife::close() noexcept {
  closed_ = true;
  notify_all();
}

void ChannelLife::notify_all() noexcept {
  events_.tell();
  turns_.next();
}

}  // namespace offpath::channel
