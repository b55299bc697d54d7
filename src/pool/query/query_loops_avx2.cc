#define OFP_LOOPS avx2
#include "pool/query/query_loops.inc"
