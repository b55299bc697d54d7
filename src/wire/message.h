// All that the rings carry: requests of the host and replies of the agent, a file for each subject.
#pragma once

#include "wire/exchange_messages.h"
#include "wire/lane_messages.h"
#include "wire/limits.h"
#include "wire/message_kinds.h"
#include "wire/peer_messages.h"
#include "wire/pool_messages.h"
#include "wire/replies.h"
#include "wire/sift_messages.h"
#include "wire/stream_messages.h"
#include "wire/task_messages.h"
#include "wire/tcp_messages.h"

// Every message there is, for what goes through all of them.
#define OFFPATH_MESSAGES(X) \
  OFFPATH_STREAM_MESSAGES(X) OFFPATH_POOL_MESSAGES(X) OFFPATH_PEER_MESSAGES(X) \
  OFFPATH_SIFT_MESSAGES(X) OFFPATH_EXCHANGE_MESSAGES(X) OFFPATH_TASK_MESSAGES(X) \
  OFFPATH_LANE_MESSAGES(X) OFFPATH_TCP_MESSAGES(X) OFFPATH_REPLY_MESSAGES(X)
