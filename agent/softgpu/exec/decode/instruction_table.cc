// SPDX-License-Identifier: Apache-2.0
// The forms in words are for docs/softgpu.md: what is supported is up to the decoders. Rows stand
// by group and name, as in the page.
#include "agent/softgpu/exec/decode/instruction_table.h"

namespace gpuloom::softgpu {
namespace {

constexpr std::string_view kInteger = "Integer arithmetic";
constexpr std::string_view kFloat = "Floating point";
constexpr std::string_view kBits = "Logic, shifts and bits";
constexpr std::string_view kCompare = "Comparison and selection";
constexpr std::string_view kMove = "Data movement and conversion";
constexpr std::string_view kImage = "Textures and surfaces";
constexpr std::string_view kAtomic = "Atomics";
constexpr std::string_view kControl = "Control flow";
constexpr std::string_view kSync = "Barriers and fences";
constexpr std::string_view kWarp = "Warp-wide";
constexpr std::string_view kMatrix = "Matrices";
constexpr std::string_view kVideo = "Video";

constexpr Instruction kTable[] = {
    {"abs", kInteger, ".{s16,s32,s64}; [.ftz].f32; .f64; [.ftz].{f16,f16x2}; .{bf16,bf16x2}",
     DecodeAbs},
    {"add", kInteger,
     ".{u16,u32,u64,s16,s32,s64}; .{u16x2,s16x2}; .sat.s32; .cc.{u32,s32,u64,s64}; "
     "[.{rn,rz,rm,rp}][.ftz][.sat].f32; [.{rn,rz,rm,rp}].f64; "
     "[.rn][.ftz][.sat].{f16,f16x2,bf16,bf16x2}",
     DecodeAdd},
    {"addc", kInteger, "[.cc].{u32,s32,u64,s64}", DecodeAddc},
    {"div", kInteger,
     ".{u16,u32,u64,s16,s32,s64}; .{approx,full,rn,rz,rm,rp}[.ftz].f32; .{rn,rz,rm,rp}.f64",
     DecodeDiv},
    {"dp2a", kInteger, ".{lo,hi}.{u32,s32}.{u32,s32}", DecodeDp},
    {"dp4a", kInteger, ".{u32,s32}.{u32,s32}", DecodeDp},
    {"mad", kInteger,
     ".{lo,hi}.{u16,u32,u64,s16,s32,s64}; .wide.{u16,u32,s16,s32}; .hi.sat.s32; "
     ".{lo,hi}.cc.{u32,s32,u64,s64}; as fma for .f32 and .f64",
     DecodeMad},
    {"mad24", kInteger, ".{lo,hi}.{u32,s32}; .hi.sat.s32", DecodeMad24},
    {"madc", kInteger, ".{lo,hi}[.cc].{u32,s32,u64,s64}", DecodeMadc},
    {"max", kInteger,
     ".{u16,u32,u64,s16,s32,s64}; .relu.s32; .u16x2; [.relu].s16x2; "
     "[.ftz][.NaN][.xorsign.abs].f32; .f64; [.ftz][.NaN][.xorsign.abs].{f16,f16x2,bf16,bf16x2}",
     DecodeMinMax},
    {"min", kInteger,
     ".{u16,u32,u64,s16,s32,s64}; .relu.s32; .u16x2; [.relu].s16x2; "
     "[.ftz][.NaN][.xorsign.abs].f32; .f64; [.ftz][.NaN][.xorsign.abs].{f16,f16x2,bf16,bf16x2}",
     DecodeMinMax},
    {"mul", kInteger,
     ".{lo,hi}.{u16,u32,u64,s16,s32,s64}; .wide.{u16,u32,s16,s32}; "
     "[.{rn,rz,rm,rp}][.ftz][.sat].f32; [.{rn,rz,rm,rp}].f64; "
     "[.rn][.ftz][.sat].{f16,f16x2,bf16,bf16x2}",
     DecodeMul},
    {"mul24", kInteger, ".{lo,hi}.{u32,s32}", DecodeMul24},
    {"neg", kInteger, ".{s16,s32,s64}; [.ftz].f32; .f64; [.ftz].{f16,f16x2}; .{bf16,bf16x2}",
     DecodeNeg},
    {"rem", kInteger, ".{u16,u32,u64,s16,s32,s64}", DecodeRem},
    {"sad", kInteger, ".{u16,u32,u64,s16,s32,s64}", DecodeSad},
    {"sub", kInteger,
     ".{u16,u32,u64,s16,s32,s64}; .sat.s32; .cc.{u32,s32,u64,s64}; "
     "[.{rn,rz,rm,rp}][.ftz][.sat].f32; [.{rn,rz,rm,rp}].f64; "
     "[.rn][.ftz][.sat].{f16,f16x2,bf16,bf16x2}",
     DecodeSub},
    {"subc", kInteger, "[.cc].{u32,s32,u64,s64}", DecodeSubc},

    {"copysign", kFloat, ".{f32,f64}", DecodeCopysign},
    {"cos", kFloat, ".approx[.ftz].f32", DecodeSinCos},
    {"ex2", kFloat, ".approx[.ftz].f32; .approx[.ftz].{f16,f16x2,bf16,bf16x2}", DecodeEx2},
    {"fma", kFloat,
     ".{rn,rz,rm,rp}[.ftz][.sat].f32; .{rn,rz,rm,rp}.f64; "
     ".rn[.ftz][.sat][.relu].{f16,f16x2,bf16,bf16x2}",
     DecodeFma},
    {"lg2", kFloat, ".approx[.ftz].f32", DecodeLg2},
    {"rcp", kFloat, ".{approx,rn,rz,rm,rp}[.ftz].f32; .{rn,rz,rm,rp}.f64; .approx.ftz.f64",
     DecodeRcp},
    {"rsqrt", kFloat, ".approx[.ftz].f32; .approx[.ftz].f64", DecodeRsqrt},
    {"sin", kFloat, ".approx[.ftz].f32", DecodeSinCos},
    {"sqrt", kFloat, ".{approx,rn,rz,rm,rp}[.ftz].f32; .{rn,rz,rm,rp}.f64", DecodeSqrt},
    {"tanh", kFloat, ".approx.f32; .approx.{f16,f16x2,bf16,bf16x2}", DecodeTanh},
    {"testp", kFloat, ".{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}",
     DecodeTestp},

    {"and", kBits, ".{pred,b16,b32,b64}", DecodeLogic},
    {"bfe", kBits, ".{u32,u64,s32,s64}", DecodeBfe},
    {"bfi", kBits, ".{b32,b64}", DecodeBfi},
    {"bfind", kBits, "[.shiftamt].{u32,u64,s32,s64}", DecodeBfind},
    {"bmsk", kBits, ".{clamp,wrap}.b32", DecodeBmsk},
    {"brev", kBits, ".{b32,b64}", DecodeBrev},
    {"clz", kBits, ".{b32,b64}", DecodeCount},
    {"cnot", kBits, ".{b16,b32,b64}", DecodeCnot},
    {"fns", kBits, ".b32", DecodeFns},
    {"lop3", kBits, "[.{or,and}].b32", DecodeLop3},
    {"not", kBits, ".{pred,b16,b32,b64}", DecodeNot},
    {"or", kBits, ".{pred,b16,b32,b64}", DecodeLogic},
    {"popc", kBits, ".{b32,b64}", DecodeCount},
    {"prmt", kBits, ".b32[.{f4e,b4e,rc8,ecl,ecr,rc16}]", DecodePrmt},
    {"shf", kBits, ".{l,r}.{clamp,wrap}.b32", DecodeShf},
    {"shl", kBits, ".{b16,b32,b64}", DecodeShift},
    {"shr", kBits, ".{b16,b32,b64,u16,u32,u64,s16,s32,s64}", DecodeShift},
    {"szext", kBits, ".{clamp,wrap}.{u32,s32}", DecodeSzext},
    {"xor", kBits, ".{pred,b16,b32,b64}", DecodeLogic},

    {"selp", kCompare, ".{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", DecodeSelp},
    {"set", kCompare,
     ".CmpOp[.BoolOp][.ftz].{u16,s16,u32,s32,f16,bf16,f32}.{b,u,s}{16,32,64},f16,bf16,f32,f64; "
     ".{f16x2,u32,s32}.f16x2; .{bf16x2,u32,s32}.bf16x2",
     DecodeSet},
    {"setp", kCompare,
     ".CmpOp[.BoolOp][.ftz].{b,u,s}{16,32,64},f16,bf16,f16x2,bf16x2,f32,f64; CmpOp: eq ne lt le gt "
     "ge "
     "lo ls hi hs equ neu ltu leu gtu geu num nan; BoolOp: and or xor",
     DecodeSetp},
    {"slct", kCompare, "[.ftz].{b,u,s}{16,32,64},f32,f64.{s32,f32}", DecodeSlct},

    {"alloca", kMove, ".{u32,u64}; 64 KiB per thread in all", DecodeAlloca},
    {"applypriority", kMove, "[.global].L2::evict_normal; does nothing", DecodeDiscard},
    {"cp", kMove,
     ".async.{ca,cg}.shared[::cta].global[.L2::…] of 4, 8 or 16 bytes; "
     ".async.{commit_group,wait_group,wait_all}; .async.mbarrier.arrive[.noinc].shared[::cta].b64; "
     ".async.bulk.shared{::cta,::cluster}.{global,shared::cta}.mbarrier::complete_tx::bytes"
     "[.multicast::cluster]; .async.bulk.global.shared::cta.bulk_group; "
     ".async.bulk.{commit_group,wait_group[.read]}; .async.bulk.prefetch.L2.global; "
     ".async.bulk.tensor.{1d,2d,3d,4d,5d}[.tile] between global and shared, and .prefetch of it; "
     ".reduce.async.bulk[.tensor].{add,min,max,inc,dec,and,or,xor}; all done at once",
     DecodeCp},
    {"createpolicy", kMove, ".{fractional,range,cvt}…b64; gives 0", DecodeCreatepolicy},
    {"cvt", kMove,
     "[.{rn,rz,rm,rp,rni,rzi,rmi,rpi}][.ftz][.sat][.relu] between u8 u16 u32 u64 s8 s16 s32 s64 "
     "f16 bf16 "
     "f32 f64; .{rn,rz}[.relu][.satfinite].{f16x2,bf16x2}.f32; "
     ".{rna,rn,rz}[.relu][.satfinite].tf32.f32; "
     ".rn.satfinite[.relu].{e4m3x2,e5m2x2}.{f32,f16x2}; .rn[.relu].f16x2.{e4m3x2,e5m2x2}; "
     ".pack.sat.{u16,s16}.s32; .pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32",
     DecodeCvt},
    {"cvta", kMove,
     "[.to].{global,const,shared[::cta,::cluster],local,param}.u64; [.to].{global,const}.u32",
     DecodeCvta},
    {"discard", kMove, "[.global].L2", DecodeDiscard},
    {"getctarank", kMove, "[.shared::cluster].{u32,u64}", DecodeGetctarank},
    {"isspacep", kMove, ".{global,const,shared[::cta,::cluster],local,param}", DecodeIsspacep},
    {"ld", kMove,
     "[.{weak,volatile,relaxed,acquire}[.scope]][.{global,const,shared[::cta,::cluster],local,"
     "param}]"
     "[.nc][.cache hints][.{v2,v4}].{b,u,s}{8,16,32,64},f32,f64",
     DecodeLd},
    {"ldu", kMove, "[.global][.{v2,v4}].{b,u,s}{8,16,32,64},f32,f64", DecodeLdu},
    {"mapa", kMove, "[.shared::cluster].{u32,u64}", DecodeMapa},
    {"mov", kMove,
     ".{pred,b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}; packing and unpacking of {…} of 2 or 4 "
     "parts",
     DecodeMov},
    {"prefetch", kMove, "[.{global,local,const}][.tensormap].{L1,L2,L2::…}; does nothing",
     DecodePrefetch},
    {"prefetchu", kMove, ".L1; does nothing", DecodePrefetch},
    {"st", kMove,
     "[.{weak,volatile,relaxed,release}[.scope]][.{global,shared[::cta,::cluster],local,param}]"
     "[.cache hints][.{v2,v4}].{b,u,s}{8,16,32,64},f32,f64; "
     ".async[.weak].shared::cluster.mbarrier::complete_tx::bytes[.{v2,v4}].{b,u,s}{32,64},f32,f64",
     DecodeSt},
    {"stackrestore", kMove, ".{u32,u64}", DecodeStackrestore},
    {"stacksave", kMove, ".{u32,u64}", DecodeStacksave},
    {"tensormap", kMove,
     ".replace.tile.{global_address,rank,box_dim,global_dim,global_stride,element_stride,elemtype,"
     "interleave_layout,swizzle_mode,fill_mode}[.{global,shared::cta}].b1024.{b32,b64}; "
     ".cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned",
     DecodeTensormap},

    {"suld", kImage,
     ".b.{1d,2d,3d,a1d,a2d}[.{ca,cg,cs,cv}][.{v2,v4}].{b8,b16,b32,b64}[.{trap,clamp,zero}]",
     DecodeSuld},
    {"sured", kImage,
     ".b.{add,min,max,and,or}.{1d,2d,3d,a1d,a2d}.{u32,s32,u64,b32}[.{trap,clamp,zero}]",
     DecodeSured},
    {"suq", kImage, ".{width,height,depth,array_size}.b32", DecodeSuq},
    {"sust", kImage,
     ".b.{1d,2d,3d,a1d,a2d}[.{wb,cg,cs,wt}][.{v2,v4}].{b8,b16,b32,b64}[.{trap,clamp,zero}]",
     DecodeSust},
    {"tex", kImage, "[.{level,grad}].{1d,2d,3d,a1d,a2d,cube,acube}.v4.{f32,s32,u32}.{f32,s32}",
     DecodeTex},
    {"tld4", kImage, ".{r,g,b,a}.{2d,a2d}.v4.{f32,s32,u32}.f32", DecodeTld4},
    {"txq", kImage, ".{width,height,depth,array_size,num_mipmap_levels}.b32", DecodeTxq},

    {"atom", kAtomic,
     "[.sem][.scope][.{global,shared[::cta,::cluster]}].{add,min,max}.{u32,s32,u64,s64}; "
     ".{inc,dec}.u32; "
     ".add.{f32,f64}; .add.noftz.{f16,f16x2,bf16,bf16x2}; .{and,or,xor,exch}.{b32,b64}; "
     ".cas.{b16,b32,b64}; .global.{v2,v4}.f32.add; "
     ".global.{v2,v4,v8}.{f16,bf16}.{add,min,max}.noftz; "
     ".global.{v2,v4}.{f16x2,bf16x2}.{add,min,max}.noftz",
     DecodeAtom},
    {"red", kAtomic,
     "as atom, without exch and cas; "
     ".async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes of integers",
     DecodeRed},

    {"bra", kControl, "[.uni]", DecodeBra},
    {"brkpt", kControl, "does nothing", DecodeBrkpt},
    {"brx", kControl, ".idx[.uni]", DecodeBrx},
    {"call", kControl, "[.uni] direct, and indirect with a prototype or a list of targets",
     DecodeCall},
    {"exit", kControl, "", DecodeExit},
    {"griddepcontrol", kControl, ".{wait,launch_dependents}; does nothing", DecodeGridDependency},
    {"nanosleep", kControl, ".u32", DecodeNanosleep},
    {"pmevent", kControl, "[.mask]; does nothing", DecodePmevent},
    {"ret", kControl, "[.uni]", DecodeRet},
    {"setmaxnreg", kControl, ".{inc,dec}.sync.aligned.u32; does nothing", DecodeSetmaxnreg},
    {"trap", kControl, "", DecodeTrap},

    {"bar", kSync,
     "[.cta].{sync,arrive}; [.cta].red.popc.u32; [.cta].red.{and,or}.pred; .warp.sync", DecodeBar},
    {"barrier", kSync,
     "[.cta].{sync,arrive}[.aligned]; [.cta].red.popc[.aligned].u32; "
     "[.cta].red.{and,or}[.aligned].pred; "
     ".cluster.{arrive,wait}[.sem][.aligned]",
     DecodeBarrier},
    {"fence", kSync,
     "[.{sc,acq_rel,acquire,release}][.scope]; .mbarrier_init.release.cluster; "
     ".proxy.{alias,async[.space],tensormap::generic.{acquire,release}.scope}",
     DecodeFence},
    {"mbarrier", kSync,
     ".{init,inval,expect_tx,complete_tx}[.sem.scope][.shared{::cta,::cluster}].b64; "
     ".arrive[.expect_tx][.noComplete][.sem.scope][.shared{::cta,::cluster}].b64; .arrive_drop…; "
     ".{test_wait,try_wait}[.parity][.sem.scope][.shared[::cta]].b64; .pending_count.b64",
     DecodeMbarrier},
    {"membar", kSync, ".{cta,gl,sys}; .proxy.alias", DecodeMembar},

    {"activemask", kWarp, ".b32", DecodeActivemask},
    {"elect", kWarp, ".sync", DecodeElect},
    {"match", kWarp, ".{any,all}.sync.{b32,b64}", DecodeMatch},
    {"redux", kWarp, ".sync.{add,min,max}.{u32,s32}; .sync.{and,or,xor}.b32", DecodeRedux},
    {"shfl", kWarp, ".sync.{up,down,bfly,idx}.b32", DecodeShfl},
    {"vote", kWarp, ".sync.{all,any,uni}.pred; .sync.ballot.b32", DecodeVote},

    {"ldmatrix", kMatrix, ".sync.aligned.m8n8.{x1,x2,x4}[.trans][.shared[::cta]].b16",
     DecodeLdmatrix},
    {"mma", kMatrix,
     ".sync.aligned.m16n8{k8,k16}.row.col.{f16,f32}.f16.f16.{f16,f32}; "
     ".m16n8{k8,k16}.row.col.f32.bf16.bf16.f32; .m16n8{k4,k8}.row.col.f32.tf32.tf32.f32; "
     ".m16n8{k16,k32}.row.col.{f16,f32}.{e4m3,e5m2}.{e4m3,e5m2}.{f16,f32}; "
     ".{m8n8k4,m16n8k4,m16n8k8,m16n8k16}.row.col.f64.f64.f64.f64; "
     ".{m8n8k16,m16n8k16,m16n8k32}.row.col[.satfinite].s32.{s8,u8}.{s8,u8}.s32; "
     ".{m8n8k32,m16n8k32,m16n8k64}.row.col[.satfinite].s32.{s4,u4}.{s4,u4}.s32; "
     ".{m8n8k128,m16n8k128,m16n8k256}.row.col.s32.b1.b1.s32.{and,xor}.popc",
     DecodeMma},
    {"movmatrix", kMatrix, ".sync.aligned.m8n8.trans.b16", DecodeMovmatrix},
    {"stmatrix", kMatrix, ".sync.aligned.m8n8.{x1,x2,x4}[.trans][.shared[::cta]].b16",
     DecodeStmatrix},
    {"wgmma", kMatrix,
     ".mma_async.sync.aligned.m64nNk16.{f16,f32}.f16.f16; .m64nNk16.f32.bf16.bf16; "
     ".m64nNk8.f32.tf32.tf32; .m64nNk32.{f16,f32}.{e4m3,e5m2}.{e4m3,e5m2}; "
     ".m64nNk32[.satfinite].s32.{s8,u8}.{s8,u8}; .m64nNk256.s32.b1.b1.and.popc; "
     ".{fence,commit_group,wait_group}.sync.aligned; all done at once",
     DecodeWgmma},
    {"wmma", kMatrix,
     ".{load.a,load.b,load.c,mma,store.d}.sync.aligned of {m16n16k16,m8n32k16,m32n8k16} with "
     "f16, bf16, s8 and u8, m16n16k8 with tf32, m8n8k4 with f64, m8n8k32 with s4 and u4, m8n8k128 "
     "with b1",
     DecodeWmma},

    {"vabsdiff2", kVideo, "as vabsdiff4", DecodeVideo},
    {"vabsdiff4", kVideo, ".{u32,s32}.{u32,s32}.{u32,s32}[.{add,sat}] of whole registers",
     DecodeVideo},
    {"vadd2", kVideo, "as vabsdiff4", DecodeVideo},
    {"vadd4", kVideo, "as vabsdiff4", DecodeVideo},
    {"vmax2", kVideo, "as vabsdiff4", DecodeVideo},
    {"vmax4", kVideo, "as vabsdiff4", DecodeVideo},
    {"vmin2", kVideo, "as vabsdiff4", DecodeVideo},
    {"vmin4", kVideo, "as vabsdiff4", DecodeVideo},
    {"vsub2", kVideo, "as vabsdiff4", DecodeVideo},
    {"vsub4", kVideo, "as vabsdiff4", DecodeVideo},
};

}  // namespace

// A walk: names are compared once for each instruction of a text, not while it runs.
const Instruction* FindInstruction(std::string_view name) {
  for (const Instruction& instruction : kTable) {
    if (instruction.name == name) return &instruction;
  }
  return nullptr;
}

std::span<const Instruction> AllInstructions() { return kTable; }

}  // namespace gpuloom::softgpu
