"""Which header class belongs to which request code, in both directions.

The processors name the class that they read; this is for who asks by code: checks and fuzzing.
Codes of RocketMQ's controller and container are left out: nothing of them is here.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.headers import access, admin, client, imago, namesrv, pop, pull, send

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_wire.remoting.fields import Header

REQUEST_HEADERS: Mapping[RequestCode, type[Header]] = MappingProxyType(
    {
        RequestCode.SEND_MESSAGE: send.SendMessageRequestHeader,
        RequestCode.PULL_MESSAGE: pull.PullMessageRequestHeader,
        RequestCode.QUERY_MESSAGE: pull.QueryMessageRequestHeader,
        RequestCode.QUERY_CONSUMER_OFFSET: pull.QueryConsumerOffsetRequestHeader,
        RequestCode.UPDATE_CONSUMER_OFFSET: pull.UpdateConsumerOffsetRequestHeader,
        RequestCode.UPDATE_AND_CREATE_TOPIC: admin.CreateTopicRequestHeader,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: admin.CreateTopicListRequestHeader,
        RequestCode.GET_ALL_TOPIC_CONFIG: admin.GetAllTopicConfigRequestHeader,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: pull.SearchOffsetRequestHeader,
        RequestCode.GET_MAX_OFFSET: pull.GetMaxOffsetRequestHeader,
        RequestCode.GET_MIN_OFFSET: pull.GetMinOffsetRequestHeader,
        RequestCode.GET_EARLIEST_MSG_STORETIME: pull.GetEarliestMsgStoretimeRequestHeader,
        RequestCode.VIEW_MESSAGE_BY_ID: pull.ViewMessageRequestHeader,
        RequestCode.HEART_BEAT: client.HeartbeatRequestHeader,
        RequestCode.UNREGISTER_CLIENT: client.UnregisterClientRequestHeader,
        RequestCode.CONSUMER_SEND_MSG_BACK: pull.ConsumerSendMsgBackRequestHeader,
        RequestCode.END_TRANSACTION: send.EndTransactionRequestHeader,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: client.GetConsumerListByGroupRequestHeader,
        RequestCode.CHECK_TRANSACTION_STATE: send.CheckTransactionStateRequestHeader,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: client.NotifyConsumerIdsChangedRequestHeader,
        RequestCode.LOCK_BATCH_MQ: client.LockBatchMqRequestHeader,
        RequestCode.UNLOCK_BATCH_MQ: client.UnlockBatchMqRequestHeader,
        RequestCode.PUT_KV_CONFIG: namesrv.PutKVConfigRequestHeader,
        RequestCode.GET_KV_CONFIG: namesrv.GetKVConfigRequestHeader,
        RequestCode.DELETE_KV_CONFIG: namesrv.DeleteKVConfigRequestHeader,
        RequestCode.REGISTER_BROKER: namesrv.RegisterBrokerRequestHeader,
        RequestCode.UNREGISTER_BROKER: namesrv.UnRegisterBrokerRequestHeader,
        RequestCode.GET_ROUTEINFO_BY_TOPIC: namesrv.GetRouteInfoRequestHeader,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: admin.GetAllSubscriptionGroupRequestHeader,
        RequestCode.GET_TOPIC_STATS_INFO: admin.GetTopicStatsInfoRequestHeader,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: client.GetConsumerConnectionListRequestHeader,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: client.GetProducerConnectionListRequestHeader,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: namesrv.WipeWritePermOfBrokerRequestHeader,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: admin.DeleteSubscriptionGroupRequestHeader,
        RequestCode.GET_CONSUME_STATS: admin.GetConsumeStatsRequestHeader,
        RequestCode.DELETE_TOPIC_IN_BROKER: admin.DeleteTopicRequestHeader,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: namesrv.DeleteTopicFromNamesrvRequestHeader,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: namesrv.RegisterTopicRequestHeader,
        RequestCode.GET_KVLIST_BY_NAMESPACE: namesrv.GetKVListByNamespaceRequestHeader,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: client.ResetOffsetRequestHeader,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: client.GetConsumerStatusRequestHeader,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: client.ResetOffsetRequestHeader,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: client.GetConsumerStatusRequestHeader,
        RequestCode.GET_TOPICS_BY_CLUSTER: namesrv.GetTopicsByClusterRequestHeader,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: admin.QueryTopicConsumeByWhoRequestHeader,
        RequestCode.QUERY_CONSUME_TIME_SPAN: admin.QueryConsumeTimeSpanRequestHeader,
        RequestCode.GET_CONSUMER_RUNNING_INFO: client.GetConsumerRunningInfoRequestHeader,
        RequestCode.QUERY_CORRECTION_OFFSET: admin.QueryCorrectionOffsetHeader,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: client.ConsumeMessageDirectlyResultRequestHeader,
        RequestCode.SEND_MESSAGE_V2: send.SendMessageRequestHeaderV2,
        RequestCode.CLONE_GROUP_OFFSET: admin.CloneGroupOffsetRequestHeader,
        RequestCode.VIEW_BROKER_STATS_DATA: admin.ViewBrokerStatsDataRequestHeader,
        RequestCode.GET_BROKER_CONSUME_STATS: admin.GetConsumeStatsInBrokerHeader,
        RequestCode.SEND_BATCH_MESSAGE: send.SendMessageRequestHeaderV2,
        RequestCode.QUERY_CONSUME_QUEUE: admin.QueryConsumeQueueRequestHeader,
        RequestCode.QUERY_DATA_VERSION: namesrv.QueryDataVersionRequestHeader,
        RequestCode.RESUME_CHECK_HALF_MESSAGE: send.ResumeCheckHalfMessageRequestHeader,
        RequestCode.SEND_REPLY_MESSAGE: send.SendMessageRequestHeader,
        RequestCode.SEND_REPLY_MESSAGE_V2: send.SendMessageRequestHeaderV2,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: send.ReplyMessageRequestHeader,
        RequestCode.ADD_WRITE_PERM_OF_BROKER: namesrv.AddWritePermOfBrokerRequestHeader,
        RequestCode.GET_ALL_PRODUCER_INFO: client.GetAllProducerInfoRequestHeader,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: admin.QueryTopicsByConsumerRequestHeader,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: admin.QuerySubscriptionByConsumerRequestHeader,
        RequestCode.GET_TOPIC_CONFIG: admin.GetTopicConfigRequestHeader,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: admin.GetSubscriptionGroupConfigRequestHeader,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: admin.UpdateGroupForbiddenRequestHeader,
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: admin.CheckRocksdbCqWriteProgressRequestHeader,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: admin.ExportRocksDBConfigToJsonRequestHeader,
        RequestCode.LITE_PULL_MESSAGE: pull.PullMessageRequestHeader,
        RequestCode.RECALL_MESSAGE: send.RecallMessageRequestHeader,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: admin.CreateTopicRequestHeader,
        RequestCode.GET_BROKER_MEMBER_GROUP: namesrv.GetBrokerMemberGroupRequestHeader,
        RequestCode.BROKER_HEARTBEAT: namesrv.BrokerHeartbeatRequestHeader,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: namesrv.NotifyMinBrokerIdChangeRequestHeader,
        RequestCode.POP_MESSAGE: pop.PopMessageRequestHeader,
        RequestCode.ACK_MESSAGE: pop.AckMessageRequestHeader,
        RequestCode.PEEK_MESSAGE: pop.PeekMessageRequestHeader,
        RequestCode.POP_LITE_MESSAGE: pop.PopLiteMessageRequestHeader,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: pop.ChangeInvisibleTimeRequestHeader,
        RequestCode.NOTIFICATION: pop.NotificationRequestHeader,
        RequestCode.POLLING_INFO: pop.PollingInfoRequestHeader,
        RequestCode.EXCHANGE_BROKER_HA_INFO: admin.ExchangeHAInfoRequestHeader,
        RequestCode.RESET_MASTER_FLUSH_OFFSET: admin.ResetMasterFlushOffsetHeader,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: access.CreateAccessConfigRequestHeader,
        RequestCode.DELETE_ACL_CONFIG: access.DeleteAccessConfigRequestHeader,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (
            access.UpdateGlobalWhiteAddrsConfigRequestHeader
        ),
        RequestCode.AUTH_CREATE_USER: access.CreateUserRequestHeader,
        RequestCode.AUTH_UPDATE_USER: access.UpdateUserRequestHeader,
        RequestCode.AUTH_DELETE_USER: access.DeleteUserRequestHeader,
        RequestCode.AUTH_GET_USER: access.GetUserRequestHeader,
        RequestCode.AUTH_LIST_USER: access.ListUsersRequestHeader,
        RequestCode.AUTH_CREATE_ACL: access.CreateAclRequestHeader,
        RequestCode.AUTH_UPDATE_ACL: access.UpdateAclRequestHeader,
        RequestCode.AUTH_DELETE_ACL: access.DeleteAclRequestHeader,
        RequestCode.AUTH_GET_ACL: access.GetAclRequestHeader,
        RequestCode.AUTH_LIST_ACL: access.ListAclsRequestHeader,
        RequestCode.IMAGO_STAGE_BATCH: imago.StageBatchRequestHeader,
        RequestCode.IMAGO_PUBLISH_STAGED: imago.PublishStagedRequestHeader,
    }
)
"""The header class of each request; codes without one carry none."""

RESPONSE_HEADERS: Mapping[RequestCode, type[Header]] = MappingProxyType(
    {
        RequestCode.SEND_MESSAGE: send.SendMessageResponseHeader,
        RequestCode.PULL_MESSAGE: pull.PullMessageResponseHeader,
        RequestCode.QUERY_MESSAGE: pull.QueryMessageResponseHeader,
        RequestCode.QUERY_CONSUMER_OFFSET: pull.QueryConsumerOffsetResponseHeader,
        RequestCode.EXCHANGE_BROKER_HA_INFO: admin.ExchangeHAInfoResponseHeader,
        RequestCode.GET_ALL_TOPIC_CONFIG: admin.GetAllTopicConfigResponseHeader,
        RequestCode.GET_BROKER_CONFIG: admin.GetBrokerConfigResponseHeader,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: pull.SearchOffsetResponseHeader,
        RequestCode.GET_MAX_OFFSET: pull.GetMaxOffsetResponseHeader,
        RequestCode.GET_MIN_OFFSET: pull.GetMinOffsetResponseHeader,
        RequestCode.GET_EARLIEST_MSG_STORETIME: pull.GetEarliestMsgStoretimeResponseHeader,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO: access.GetBrokerAclConfigResponseHeader,
        RequestCode.GET_KV_CONFIG: namesrv.GetKVConfigResponseHeader,
        RequestCode.REGISTER_BROKER: namesrv.RegisterBrokerResponseHeader,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: admin.GetAllSubscriptionGroupResponseHeader,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: namesrv.WipeWritePermOfBrokerResponseHeader,
        RequestCode.QUERY_DATA_VERSION: namesrv.QueryDataVersionResponseHeader,
        RequestCode.ADD_WRITE_PERM_OF_BROKER: namesrv.AddWritePermOfBrokerResponseHeader,
        RequestCode.RECALL_MESSAGE: send.RecallMessageResponseHeader,
        RequestCode.POP_MESSAGE: pop.PopMessageResponseHeader,
        RequestCode.PEEK_MESSAGE: pop.PopMessageResponseHeader,
        RequestCode.POP_LITE_MESSAGE: pop.PopMessageResponseHeader,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: pop.ChangeInvisibleTimeResponseHeader,
        RequestCode.NOTIFICATION: pop.NotificationResponseHeader,
        RequestCode.POLLING_INFO: pop.PollingInfoResponseHeader,
        RequestCode.HEART_BEAT: client.HeartbeatResponseHeader,
        RequestCode.SEND_MESSAGE_V2: send.SendMessageResponseHeader,
        RequestCode.SEND_BATCH_MESSAGE: send.SendMessageResponseHeader,
        RequestCode.SEND_REPLY_MESSAGE: send.SendMessageResponseHeader,
        RequestCode.SEND_REPLY_MESSAGE_V2: send.SendMessageResponseHeader,
        RequestCode.LITE_PULL_MESSAGE: pull.PullMessageResponseHeader,
    }
)
"""The header class of each successful response."""
