"""The words of the pages, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping

LANGUAGES = ("en", "zh")

CHINESE: Mapping[str, str] = {
    "Model registry": "模型制品仓库",
    "Models": "模型",
    "model": "模型",
    "models": "个模型",
    "version": "版本",
    "versions": "版本",
    "target": "目标",
    "targets": "目标",
    "channel": "通道",
    "channels": "通道",
    "newest": "最新",
    "no model": "没有模型",
    "no version yet": "还没有版本",
    "Filter by name": "按名称筛选",
    "Filter": "筛选",
    "Skip to content": "跳到正文",
    "damaged": "已损坏",
    "draft": "草稿",
    "previous": "上一页",
    "next": "下一页",
    "page": "页",
    "History": "历史",
    "history": "历史",
    "Gate": "验收",
    "gate": "验收",
    "passed": "通过",
    "failed": "未通过",
    "ungated": "未验收",
    "ran on": "运行于",
    "device": "设备",
    "simulator": "仿真器",
    "host": "主机",
    "forecast": "预测",
    "none": "无",
    "precision": "精度",
    "size": "大小",
    "signature": "签名",
    "verified": "已验证",
    "unknown-key": "未知密钥",
    "invalid": "无效",
    "unsigned": "未签名",
    "output": "输出",
    "Outputs": "各输出",
    "no numbers": "没有数值",
    "Nothing ran this artifact: the numbers are a forecast.": "该制品尚未实际运行：以下数值为预测值。",
    "Measured on a device since": "发布后在设备上测量",
    "Nothing was measured.": "没有测量数据。",
    "Support": "算子支持",
    "supported": "支持",
    "not supported": "不支持",
    "nodes": "节点",
    "op": "算子",
    "node": "节点",
    "state": "状态",
    "reason": "原因",
    "Where it comes from": "来源",
    "source": "源文件",
    "stage": "阶段",
    "made with": "所用工具",
    "compiler": "编译命令",
    "options": "选项",
    "Files": "文件",
    "file": "文件",
    "digest": "摘要",
    "Attached": "附件",
    "type": "类型",
    "Compared with prod": "与 prod 对比",
    "the same": "相同",
    "changed": "有变化",
    "added": "新增",
    "removed": "缺失",
    "fact": "项目",
    "before": "之前",
    "after": "之后",
    "Fetch it with standard tools": "用通用工具获取",
    "Promote": "晋级",
    "Point a channel to this version": "让通道指向此版本",
    "token": "令牌",
    "the channel has now": "通道当前版本",
    "nothing yet": "尚无",
    "rules to set aside": "豁免的规则",
    "done": "完成",
    "is now": "现在是",
    "event": "事件",
    "time": "时间",
    "by": "操作人",
    "back to": "回退到",
    "gates": "规则",
    "waived": "豁免",
    "The history does not hold together": "历史记录不一致",
    "Error": "错误",
    "Not found": "未找到",
    "Back to all models": "返回全部模型",
    "Not judged: validated elsewhere or not at all.": "未验收：在别处验证过，或未验证。",
    "Read-only: this server was started without --token-file.": "只读：服务启动时未指定 --token-file。",
}


def translate(language: str, text: str) -> str:
    """A word of the pages in a language; English where there is no other."""
    return CHINESE.get(text, text) if language == "zh" else text


def choose_language(asked: str, cookie: str, accepted: str) -> str:
    """The language of a visitor: what was asked for, else the cookie, else what the browser prefers."""
    for choice in (asked, cookie):
        if choice in LANGUAGES:
            return choice
    for part in accepted[:200].split(","):
        code = part.split(";")[0].strip().lower().split("-")[0]
        if code in LANGUAGES:
            return code
    return "en"
