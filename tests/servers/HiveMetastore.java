import java.net.InetSocketAddress;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;
import org.apache.thrift.transport.TTransportFactory;

/** A metastore on 127.0.0.1 (its own main binds every interface and makes no lock tables). Argument: port. */
public class HiveMetastore {
  public static void main(String[] arguments) throws Exception {
    var configuration = MetastoreConf.newMetastoreConf();
    TxnDbUtil.prepDb(configuration);
    var handler = new HiveMetaStore.HMSHandler("metastore", configuration, false);
    var retrying = RetryingHMSHandler.getProxy(configuration, handler, true);
    var socket = new TServerSocket(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
    new TThreadPoolServer(
            new TThreadPoolServer.Args(socket)
                .processor(new TSetIpAddressProcessor<>(retrying))
                .transportFactory(new TTransportFactory())
                .protocolFactory(new TBinaryProtocol.Factory())
                .minWorkerThreads(2)
                .maxWorkerThreads(50))
        .serve();
  }
}
